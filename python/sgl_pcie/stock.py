"""How fast is SGLang's own custom all-reduce (V1) here? What `sgl-pcie bench` compares with in groups of two.

    python -m sgl_pcie.stock --world 2 --sizes 2048,43008 --types bf16 --budget 20

Runs this install's CustomAllreduce, one process a rank, and prints the lines of `sgl-pcie-gpu perf --stream`
(docs/json-schema/perf.schema.json): back to back in a CUDA graph, in a step (behind a small kernel that touches the
input, which is taken off), and eagerly. Sums are compared before anything is timed. Exit codes: 0; 2 usage; 5 it cannot
run here, with one sentence; 8 it did not end.

The parent imports neither torch nor SGLang; ranks are this module again, with --rank. They end with the parent.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

SIZES = [kib << 10 for kib in (2, 4, 8, 16, 42, 64, 128, 256, 512, 1024, 2048, 4096, 8192)]
TYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
CANNOT, HANG = 5, 8
GRACE = 2  # seconds, in which ranks learn that one of them is gone
LAYER_BYTES = 256 << 10  # as much as sgl-pcie-gpu's layer touches
FEWER_ABOVE = 256 << 10
WARM, SHORT_US = 8, 5000


def main(arguments=None):
    options = parse(arguments)
    return rank_main(options) if options.rank is not None else run(options)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="python -m sgl_pcie.stock", description=__doc__.partition("\n")[0])
    parser.add_argument("--world", type=int, default=2, metavar="N", help="ranks, one GPU each (default 2)")
    parser.add_argument("--sizes", type=sizes, default=SIZES, metavar="LIST", help="bytes, K and M for KiB and MiB")
    parser.add_argument("--types", type=types, default=["bf16"], metavar="LIST", help="bf16, fp16, fp32 (default bf16)")
    parser.add_argument("--calls", type=int, default=100, metavar="N", help="calls in a CUDA graph (default 100)")
    parser.add_argument("--iterations", type=int, default=20, metavar="N", help="replays timed, at most (default 20)")
    parser.add_argument("--budget", type=float, default=30, metavar="SECONDS", help="time for all points (default 30)")
    parser.add_argument("--limit", type=float, default=120, metavar="SECONDS", help="end it after that (default 120)")
    parser.add_argument("--stream", action="store_true", help="accepted: it always does")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not 2 <= options.world <= 8 or options.calls < 1 or options.iterations < 3:
        parser.error("--world is 2 to 8, --calls at least 1, --iterations at least 3")
    if not (options.budget > 0 and options.limit > 0):
        parser.error("--budget and --limit are seconds above 0")
    return options


def sizes(text):
    units = {"K": 1 << 10, "M": 1 << 20}
    found = [int(word.rstrip("KM")) * units.get(word[-1:], 1) for word in text.upper().split(",")]
    if min(found) < 4:
        raise ValueError(text)
    return found


def types(text):
    found = text.split(",")
    if not set(found) <= set(TYPES):
        raise ValueError(text)
    return found


# --- the parent -------------------------------------------------------------------------------------------------------


def run(options):
    """Start the ranks, pass their lines on, and say how it ended."""
    start = time.monotonic()
    with contextlib.ExitStack() as stack:
        port = free_port()
        ranks = [stack.enter_context(Rank(options, rank, port)) for rank in range(options.world)]
        readers = [threading.Thread(target=rank.read, daemon=True) for rank in ranks]
        for reader in readers:
            reader.start()
        failed = finish(ranks, readers, start + options.limit)
        hung = not failed and any(reader.is_alive() for reader in readers)
        for rank in ranks:
            rank.end()
    code = HANG if hung else max((rank.code for rank in failed), default=0)
    words = "did not end within %g s" % options.limit if hung else failed[0].words() if failed else ""
    show(end_line(ranks[0], code, words, time.monotonic() - start))
    if words:
        print("sgl_pcie.stock: " + words, file=sys.stderr)
    return code


def finish(ranks, readers, end):
    """Wait until all have ended, or until end; for those that a failed one left waiting, a moment. Who failed?"""
    failed = []
    while any(reader.is_alive() for reader in readers) and time.monotonic() < end:
        if not failed:
            failed = [rank for rank, reader in zip(ranks, readers) if not reader.is_alive() and rank.code]
            end = min(end, time.monotonic() + GRACE) if failed else end
        time.sleep(0.02)
    return failed or [rank for rank, reader in zip(ranks, readers) if not reader.is_alive() and rank.code]


def end_line(first, code, words, seconds):
    wrong = sum(row["wrong"] for row in first.rows)
    actual = "%d rows, %d wrong elements%s" % (len(first.rows), wrong, ": " + words if words else "")
    check = {"id": "stock/v1", "status": "FAIL" if code or wrong else "PASS", "code": code, "actual": actual,
             "duration_ms": round(seconds * 1000)}
    return {"kind": "end", "schema": "sgl-pcie/1", "command": "perf", "exit_code": code, "message": words,
            "result": {0: "ok", HANG: "fail"}.get(code, "error"), "version": version(), "checks": [check],
            "unmeasured": max(0, first.points - first.done)}


class Rank:
    """A child: its lines, and why it ended."""

    def __init__(self, options, rank, port):
        self.rank, self.rows, self.points, self.done, self.why, self.code = rank, [], 0, 0, "", CANNOT
        self.errors = tempfile.TemporaryFile()
        words = ["--world", options.world, "--calls", options.calls, "--iterations", options.iterations, "--budget",
                 options.budget, "--sizes", ",".join(map(str, options.sizes)), "--types", ",".join(options.types)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sgl_pcie.stock", *map(str, words), "--rank", str(rank), "--port", str(port)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, env=environment(),
            start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def read(self):
        """Its standard output until the end. SGLang may print there, too."""
        for text in self.process.stdout:
            with contextlib.suppress(ValueError):
                self.take(json.loads(text))
        self.code = 0 if self.process.wait() == 0 else CANNOT

    def take(self, line):
        kind = line.get("kind") if isinstance(line, dict) else None
        if kind == "failed":
            self.why = line["why"]
        elif kind == "progress":
            print(line["text"], file=sys.stderr, flush=True)
        elif kind == "point":
            self.done += 1
        elif kind in ("start", "group", "row"):
            self.points = line.get("points", self.points)
            self.rows += [line] if kind == "row" else []
            show(line)

    def end(self):
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process.stdin.close()

    def words(self):
        """Why it failed: its own sentence, else the last that it wrote."""
        self.errors.seek(0)
        last = self.errors.read().decode(errors="replace").strip().splitlines()[-1:]
        return self.why or "rank %d ended with status %s%s" % (
            self.rank, self.process.returncode, ": " + last[0] if last else "")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def environment():
    """Ours off, so that the class is SGLang's own; GPUs by number, since that class takes nothing else."""
    wanted = dict(os.environ)
    wanted.update(SGLANG_FORCE_CUSTOM_AR_PCIE="0", SGLANG_SKIP_P2P_CHECK="1", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    visible = wanted.get("CUDA_VISIBLE_DEVICES", "")
    if "GPU-" in visible:
        from . import machine

        numbers = {uuid: str(index) for index, (_, uuid) in enumerate(machine.gpus())}
        wanted["CUDA_VISIBLE_DEVICES"] = ",".join(numbers.get(uuid, uuid) for uuid in visible.split(","))
    return wanted


def show(line):
    print(json.dumps(line, separators=(",", ":")), flush=True)


def version():
    from . import state

    try:
        with open(os.path.join(state.SITE, "sgl_pcie", "build.json"), encoding="utf-8") as file:
            return str(json.load(file).get("tool", "0"))
    except (OSError, ValueError, AttributeError):
        return "0"


# --- a rank -----------------------------------------------------------------------------------------------------------


class Cannot(Exception):
    """It cannot run here: one sentence."""


def rank_main(options):
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        Bench(options).run()
    except Cannot as reason:
        show({"kind": "failed", "why": str(reason)})
        return CANNOT
    return 0


def end_with_parent():
    sys.stdin.read()
    os._exit(CANNOT)


class Bench:
    def __init__(self, options):
        self.options, self.rank, self.world = options, options.rank, options.world
        self.torch = import_torch(options)
        self.torch.cuda.set_device(self.rank)
        self.device = self.torch.device("cuda", self.rank)
        self.comm, self.dist, self.group = make_comm(options, self.device)
        self.layer = {}

    def run(self):
        points = [(name, size) for name in self.options.types for size in self.options.sizes]
        end = time.monotonic() + self.options.budget
        if self.rank == 0:
            self.show_head(len(points))
        for index, (name, size) in enumerate(points):
            left = self.agree(end - time.monotonic())
            if left <= 0:
                break
            if self.rank == 0:
                place = "[%d/%d %.0fs] world %d, %s, %g KiB" % (
                    index + 1, len(points), left, self.world, name, size / 1024)
                show({"kind": "progress", "text": place + ": SGLang's own custom all-reduce"})
            self.point(name, size, left / (len(points) - index))
            show({"kind": "point"})
        self.barrier()

    def show_head(self, points):
        options = self.options
        show({"kind": "start", "schema": "sgl-pcie-perf/1", "version": version(), "p2p": True,
              "cuda_runtime": self.torch.version.cuda, "calls": options.calls, "iterations": options.iterations,
              "points": points,
              "budget_s": options.budget, "gpus": [self.gpu(index) for index in range(self.world)]})
        show({"kind": "group", "group": 0, "world": self.world, "gpus": list(range(self.world)), "transports": [],
              "nccl": None, "links": None})

    def gpu(self, index):
        known = self.torch.cuda.get_device_properties(index)
        bus = tuple(getattr(known, "pci_%s_id" % part, 0) for part in ("domain", "bus", "device"))
        uuid = "GPU-%s" % getattr(known, "uuid", "unknown")
        return {"device": index, "bus": "%04x:%02x:%02x.0" % bus, "uuid": uuid, "name": known.name}

    # Ranks in step, over the CPU group.

    def barrier(self):
        self.torch.cuda.synchronize()
        self.dist.barrier(group=self.group)

    def gather(self, mine):
        found = [None] * self.world
        self.dist.all_gather_object(found, mine, group=self.group)
        return found

    def agree(self, value):
        """Rank 0's."""
        return self.gather(value)[0]

    # A point.

    def point(self, name, size, seconds):
        torch = self.torch
        dtype = getattr(torch, TYPES[name])
        element = torch.tensor([], dtype=dtype).element_size()
        count = size // element
        values = torch.arange(count, device=self.device) % 13
        mine = (values + 3 * self.rank - 6).to(dtype)
        if not self.comm.should_custom_ar(mine):
            return  # such a message goes to NCCL
        expected = (values * self.world + sum(3 * rank - 6 for rank in range(self.world))).to(dtype)
        wrong = sum(self.gather(int((self.comm.custom_all_reduce(mine) != expected).sum())))
        row = {"kind": "row", "group": 0, "world": self.world, "dtype": name, "bytes": count * element, "count": count,
               "by": "v1", "name": "v1", "transport": None, "cut": None, "wrong": wrong}
        row.update(dict.fromkeys(("graph", "in_place", "step", "eager", "algbw", "busbw", "model_us")))
        if not wrong:
            row.update(self.times(mine, size, seconds / 8))
            row["algbw"] = round(row["bytes"] / row["graph"]["us"] / 1000, 3)
            row["busbw"] = round(row["algbw"] * 2 * (self.world - 1) / self.world, 3)
        if self.rank == 0:
            show(row)

    def times(self, mine, size, seconds):
        calls = self.options.calls
        if size > FEWER_ABOVE:  # so that a replay takes some milliseconds
            calls = max(min(10, calls), calls * FEWER_ABOVE // size)
        touched = mine[: LAYER_BYTES // mine.element_size()]

        def reduce():
            return self.comm.custom_all_reduce(mine)

        def touch():
            touched.add_(0)

        def both():
            touch()
            return reduce()

        graph = self.replayed(reduce, calls, seconds)
        layer = self.replayed(touch, calls, seconds)
        step = self.replayed(both, calls, seconds)
        for key in ("us", "p10", "p90"):
            step[key] = round(max(step[key] - layer["us"], 0), 3)
        eager = self.measured(lambda: [reduce() for _ in range(calls)], calls, seconds)
        return {"graph": graph, "step": step, "eager": eager}

    def replayed(self, call, calls, seconds):
        """In a CUDA graph, captured as SGLang captures."""
        torch = self.torch
        graph = torch.cuda.CUDAGraph()
        call()  # what is loaded at first use is not captured
        self.barrier()
        with self.comm.capture(), torch.cuda.graph(graph):
            for _ in range(calls):
                call()
        self.barrier()
        return self.measured(graph.replay, calls, seconds)

    def measured(self, batch, calls, seconds):
        trial = self.elapsed(batch, 2)[1]
        if trial < SHORT_US:
            trial = self.elapsed(batch, WARM)[1]
        replays = max(3, min(self.options.iterations, int(seconds * 1e6 / trial)))
        found = sorted(us / calls for us in self.elapsed(batch, replays))
        return {"us": quantile(found, 0.5), "p10": quantile(found, 0.1), "p90": quantile(found, 0.9), "n": len(found)}

    def elapsed(self, batch, times):
        """Microseconds of each of so many batches, of the slowest rank."""
        events = [self.torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]
        self.barrier()
        events[0].record()
        for event in events[1:]:
            batch()
            event.record()
        self.torch.cuda.synchronize()
        mine = [1000 * first.elapsed_time(second) for first, second in zip(events, events[1:])]
        return [max(column) for column in zip(*self.gather(mine))]


def quantile(rising, part):
    at = part * (len(rising) - 1)
    low = int(at)
    high = min(low + 1, len(rising) - 1)
    return round(rising[low] + (at - low) * (rising[high] - rising[low]), 3)


def import_torch(options):
    try:
        import torch
    except ImportError as error:
        raise Cannot("torch cannot be imported: %s" % error) from None
    if not torch.cuda.is_available() or torch.cuda.device_count() < options.world:
        raise Cannot("torch sees %d GPUs, %d are needed" % (torch.cuda.device_count(), options.world))
    peers = [peer for peer in range(options.world) if peer != options.rank]
    if not all(torch.cuda.can_device_access_peer(options.rank, peer) for peer in peers):
        raise Cannot("SGLang's own custom all-reduce needs P2P, which the driver does not grant")
    return torch


def make_comm(options, device):
    """SGLang's own class, started as SGLang starts it: its world group first, which it asks; then a CPU group."""
    try:
        import torch.distributed as dist
        from sglang.srt.distributed import parallel_state
        from sglang.srt.distributed.device_communicators.custom_all_reduce import CustomAllreduce
    except Exception as error:  # whatever a half-installed SGLang raises
        raise Cannot("SGLang's custom all-reduce cannot be imported: %s: %s" % (type(error).__name__, error)) from None
    parallel_state.init_distributed_environment(
        world_size=options.world, rank=options.rank, local_rank=options.rank,
        distributed_init_method="tcp://127.0.0.1:%d" % options.port, backend="nccl")
    group = dist.new_group(ranks=list(range(options.world)), backend="gloo")
    comm = CustomAllreduce(group, device)
    if comm.disabled:
        raise Cannot("SGLang's own custom all-reduce declined: no kernel package, or GPUs that it does not serve")
    return comm, dist, group


if __name__ == "__main__":
    sys.exit(main())
