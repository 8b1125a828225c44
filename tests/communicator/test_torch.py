"""With torch itself: ranks are processes, their group is gloo, sums go through a libpar.so without a GPU.

Runs where a torch imports: in this Python, or in $SGL_PCIE_TORCH_PYTHON. Exit code 77 (skipped) without one.
"""

import os
import subprocess
import sys
import traceback
import types

import common

WORLD = int(os.environ.get("SP_WORLD", "0"))


def torch_python():
    for path in (os.environ.get("SGL_PCIE_TORCH_PYTHON"), sys.executable):
        if path and subprocess.run([path, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode == 0:
            return path
    return None


class Stock:
    """SGLang's own, as groups of two hold it: all its sums are -1."""

    disabled = False

    def should_custom_ar(self, x):
        return x.numel() * x.element_size() <= 8 << 20

    def custom_all_reduce(self, x):
        return x * 0 - 1

    def capture(self):
        import contextlib

        return contextlib.nullcontext()

    def close(self):
        pass


def worker(rank, world, port):
    import torch
    import torch.distributed as dist

    sys.path.insert(0, str(common.FAKE))
    os.environ.update(SGLANG_FORCE_CUSTOM_AR_PCIE="unsafe", SGLANG_PCIE_AR_BACKEND="host")
    new = hasattr(torch, "compiler")  # Debian 12 has a torch from before Dynamo: good enough for the groups
    if not new:
        torch.compiler = types.SimpleNamespace(is_compiling=lambda: False)
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:%d" % port, rank=rank, world_size=world)
    from sgl_pcie import communicator, nvidia

    nvidia.cuda_uuid = lambda index: "GPU-%d" % index
    communicator._stream = lambda index: 0
    with torch.inference_mode():  # SGLang may build groups under it
        comm = communicator.create(dist.group.WORLD, torch.device("cuda", rank), Stock)
    assert comm is not None
    eager(torch, comm, rank, world)
    for backend in ("eager", "aot_eager") if new else ():
        compiled(torch, comm, world, backend)
    if new:
        traced_as_operator(torch, comm, world)
    comm.close()


def eager(torch, comm, rank, world):
    total = world * (world + 1) / 2
    for dtype in (torch.bfloat16, torch.float32):
        x = torch.full((16, 512), float(rank + 1), dtype=dtype)
        assert comm.should_custom_ar(x)
        y = comm.custom_all_reduce(x)
        assert y.dtype == dtype and y.shape == x.shape and bool((y == total).all()) and bool((x == rank + 1).all())
    empty = torch.empty(0, 512)
    assert comm.should_custom_ar(empty) and comm.custom_all_reduce(empty).shape == empty.shape
    turned = torch.full((8, 4), 1.0).t()
    assert not turned.is_contiguous() and (world == 2) == comm.should_custom_ar(turned)
    large = torch.ones(3 << 19, dtype=torch.bfloat16)  # 3 MiB
    assert comm.should_custom_ar(large) == (world == 2)  # there SGLang's own stands in
    # Compiled code may bring a size that it never asked about: served all the same.
    assert comm.custom_all_reduce(large)[0].item() == (-1 if world == 2 else world)


def step_of(comm):
    def step(x):
        x = x + 1
        if comm.should_custom_ar(x):
            x = comm.custom_all_reduce(x)
        else:
            x = x * 100
        return x * 2

    return step


def compiled(torch, comm, world, backend):
    """fullgraph: one break in the graph is an error. Rows vary without a compilation for each."""
    torch._dynamo.reset()
    run = torch.compile(step_of(comm), fullgraph=True, backend=backend)
    for rows in (1, 4, 7, 300, 9):  # 300 rows are 3 MB: outside
        x = torch.full((rows, 5120), 1.0, dtype=torch.bfloat16)
        torch._dynamo.maybe_mark_dynamic(x, 0)
        y = run(x)[0, 0].item()
        outside = -2 if world == 2 else 400
        assert y == (outside if rows == 300 else 4 * world), (backend, rows, y)


def traced_as_operator(torch, comm, world):
    import torch.fx.experimental.proxy_tensor as proxies

    graph = proxies.make_fx(lambda x: torch.ops.sgl_pcie.all_reduce(x, comm._id), tracing_mode="fake")(torch.ones(4, 4))
    assert "sgl_pcie.all_reduce" in graph.code, graph.code


def main():
    if not WORLD:
        python = torch_python()
        if python is None:
            print("no Python here has torch")
            return 77
        for world in (2, 3, 4):
            env = dict(os.environ, SP_WORLD=str(world))
            if subprocess.run([python, "-B", __file__], env=env, timeout=200).returncode:
                return 1
        print("3 passed, 0 failed")
        return 0
    import torch.multiprocessing

    torch.multiprocessing.spawn(worker, args=(WORLD, 29700 + WORLD), nprocs=WORLD)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception:
        traceback.print_exc()
        sys.exit(1)
