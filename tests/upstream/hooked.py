"""Build communicators in one patched tree that has a libupstream.so, use them, and print as JSON who was asked.

    python3 -I -B hooked.py TREE SCENARIO...

As tests/runtime/harness.py does it, whose stand-ins these are; but the modules in which SGLang keeps the seven
functions are its own, too, and what they call is stood in for.
"""

import json
import logging
import os
import sys
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "runtime"))

import harness  # noqa: E402

OPS = ("sglang.srt._custom_ops", harness.COMMUNICATORS + ".custom_all_reduce_ops")
SEVEN = (
    "init_custom_ar",
    "dispose",
    "meta_size",
    "register_buffer",
    "all_reduce",
    "get_graph_buffer_ipc_meta",
    "register_graph_buffers",
)
LOG = os.environ["FAKE_OVERLAY_LOG"]


class Tensor(harness.Tensor):
    made = 0
    dtype, device = "bf16", types.SimpleNamespace(index=0)

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        Tensor.made += 1
        self.address = 1 << 20 | Tensor.made

    def data_ptr(self):
        return self.address

    def element_size(self):
        return {"uint8": 1}.get(self.dtype, 2)

    def tolist(self):
        return list(self.data)


def empty(size, dtype=None, device=None):
    made = Tensor((), size)
    made.dtype = dtype
    return made


def empty_like(other):
    return Tensor((), other.elements)


class World:
    """What the other ranks say, and the state of the stream."""

    capturing, other, seen = False, None, None


def all_gather(out, sent, group=None):
    if len(sent.data) < 4096:  # a test of SGLang's
        return harness.all_gather(out, sent, group)
    for rank, part in enumerate(out):
        part.data = list(sent.data)
        if World.other and rank == 1:
            frame = bytes(sent.data)
            part.data = list(frame.replace(*World.other))


def broadcast(objects, src=None, group=None, device=None):
    if objects[0] is not None:
        World.seen = list(objects)
    objects[:] = World.seen


def stock_library():
    results = {"init_custom_ar": 7, "meta_size": 64, "get_graph_buffer_ipc_meta": ([1] * 64, [0])}
    return {name: harness.called(name, results.get(name)) for name in SEVEN}


def stand_in():
    harness.Tensor = Tensor
    harness.REAL |= set(OPS)
    harness.TORCH["torch"].update(
        Tensor=Tensor,
        empty=empty,
        empty_like=empty_like,
        float16="fp16",
        bfloat16="bf16",
        float32="fp32",
        inference_mode=lambda on: harness.contextlib.nullcontext(),
    )
    harness.CUDA.update(
        is_current_stream_capturing=lambda: World.capturing,
        current_stream=lambda device: types.SimpleNamespace(cuda_stream=99),
    )
    harness.DISTRIBUTED.update(all_gather=all_gather, broadcast_object_list=broadcast)
    harness.MODULES["sgl_kernel.allreduce"] = stock_library()
    harness.MODULES["sglang.srt.utils"].update(is_hpu=lambda: False, is_npu=lambda: False)
    return harness.stand_in()


def use(comm):
    """Eagerly, then captured."""
    comm.custom_all_reduce(Tensor((), 2048))
    with comm.capture():
        World.capturing = True
        comm.custom_all_reduce(Tensor((), 1024))
        World.capturing = False
    comm.close()


def run(car, torch, changes):
    defaults = dict(world=4, nvlink=False)
    for name, value in {**defaults, **{k: v for k, v in changes.items() if k in defaults}}.items():
        setattr(harness.Scenario, name, value)
    World.other = tuple(part.encode() for part in changes["other"]) if "other" in changes else None
    os.environ["FAKE_OVERLAY_FAIL"] = changes.get("fail", "")
    open(LOG, "w").close()
    del harness.calls[:], harness.Log.lines[:]
    device, group, out = torch.device("cuda:0"), harness.Group(), {"scenario": changes}
    if not changes.get("unasked"):
        chosen = harness.choose(car, group, device)
    if changes.get("unasked") or changes.get("abandoned"):  # a subclass, past the hook in every release
        chosen, group = type("CustomAllreduce", (car.CustomAllreduce,), {}), harness.Group()
    comm = harness.attempt(chosen, group=group, device=device)
    if isinstance(comm, list):
        out["raised"] = comm
    else:
        out.update(comm=type(comm).__name__, disabled=comm.disabled)
        if not comm.disabled:
            out["used"] = harness.attempt(use, comm)
    out["stock"] = [call[0] for call in harness.calls if call[0] in SEVEN]
    out["malloc"] = [call[1] for call in harness.calls if call[0] == "cudaMalloc"]
    out["overlay"] = Path(LOG).read_text().splitlines()
    out["log"] = [line[1:] for line in harness.Log.lines if line[0] == "sgl_pcie"]
    return out


def main():
    torch = stand_in()
    logging.getLogger().addHandler(harness.Log())
    logging.getLogger().setLevel(logging.DEBUG)
    utils = harness.importlib.import_module(harness.COMMUNICATORS + ".custom_all_reduce_utils")
    utils.gpu_p2p_access_check = lambda rank, peer: True
    car = harness.importlib.import_module(harness.COMMUNICATORS + ".custom_all_reduce")
    car.CustomAllreduce.__del__ = lambda self: None
    if hasattr(car, "custom_ar"):
        car.custom_ar = True
    print(json.dumps([run(car, torch, json.loads(text)) for text in sys.argv[2:]]))


if __name__ == "__main__":
    main()
