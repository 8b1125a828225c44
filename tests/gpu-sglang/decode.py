"""Decode speed of a real SGLang at tensor parallelism, with the all-reduce switched within one process.

    decode.py [arguments of sglang.bench_one_batch]

Environment: DECODE_MODES, a comma list; each is captured anew and timed on the same weights:
    host, peer   our transports. The one that SGLANG_PCIE_AR_BACKEND names is what SGLang set up, the other is made beside it
    v1           SGLang's own custom all-reduce
    upstream     the same on libupstream.so, which SGLang set up where SGLANG_PCIE_AR_BACKEND names it
    nccl         NCCL as it comes
    nccl-no-p2p  NCCL with NCCL_P2P_DISABLE=1, from a second copy of the library, since NCCL reads that once in a process
    none         no all-reduce at all: the limit, and what the cost of one is measured against
DECODE_KILL=N: the last rank ends itself by SIGKILL after N replays; how long until the others knew is what is measured then.
DECODE_REPEATS (default 3), DECODE_OUT (a file for JSON lines), DECODE_NAME (of the run).

Per batch size: median decode step, tokens per second, time of the graph's replay, prefill; per mode: all-reduces captured.
"""

import ctypes
import json
import os
import shutil
import signal
import statistics
import tempfile
import time

import sglang.bench_one_batch as bench
import shared
import torch
import torch.distributed as dist
from sglang.srt.distributed import parallel_state

BACKEND = "SGLANG_PCIE_AR_BACKEND"
KILL = int(os.environ.get("DECODE_KILL", "0"))
KILLED = os.environ.get("DECODE_OUT", "/dev/null") + ".killed"
STARTED = time.time()
REPEATS = int(os.environ.get("DECODE_REPEATS", "3"))


class AllReduce:
    """GroupCoordinator.all_reduce, counted while a graph is captured, and left out in mode none."""

    def __init__(self):
        self.mode, self.captured = "", {}
        inner = parallel_state.GroupCoordinator.all_reduce

        def all_reduce(group, x):
            if torch.compiler.is_compiling():
                return inner(group, x)
            if group.world_size > 1 and torch.cuda.is_current_stream_capturing():
                size = x.numel() * x.element_size()
                self.captured[size] = self.captured.get(size, 0) + 1
            return x if self.mode == "none" and group.world_size > 1 else inner(group, x)

        parallel_state.GroupCoordinator.all_reduce = all_reduce


class Served:
    """Calls that our communicators serve themselves, by size: at once, or into a graph that is being captured."""

    def __init__(self):
        self.calls = {}

    def watch(self, comm):
        if type(comm).__module__ != "sgl_pcie.communicator" or "_serve" in vars(comm):
            return
        inner = comm._serve

        def serve(x):
            size = x.numel() * x.element_size()
            self.calls[size] = self.calls.get(size, 0) + 1
            return inner(x)

        comm._serve = serve


class Replays:
    """CUDA events around each replay of a graph."""

    def __init__(self):
        self.events, self.on, self.left = [], False, -1
        inner = torch.cuda.CUDAGraph.replay

        def replay(graph):
            if not self.on:
                return inner(graph)
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            inner(graph)
            end.record()
            self.events.append((begin, end))
            self.left -= 1
            if self.left == 0:
                with open(KILLED, "w") as file:
                    file.write(repr(time.time()))
                os.kill(os.getpid(), signal.SIGKILL)

        torch.cuda.CUDAGraph.replay = replay

    def milliseconds(self):
        return [begin.elapsed_time(end) for begin, end in self.events]


ALL_REDUCE, SERVED, REPLAYS = AllReduce(), Served(), Replays()


class Arms:
    """What ca_comm and pynccl_comm of the group are in each mode; made when it is its turn."""

    def __init__(self, group):
        self.group, self.own = group, {"": (group.ca_comm, group.pynccl_comm)}

    def enter(self, mode):
        if mode not in self.own:
            self.own[mode] = self.make(mode)
        self.group.ca_comm, self.group.pynccl_comm = self.own[mode]
        SERVED.watch(self.group.ca_comm)
        return self.group.ca_comm

    def make(self, mode):
        set_up, nccl = self.own[""]
        if mode in ("host", "peer"):
            if os.environ.get(BACKEND) == mode:
                return set_up, nccl
            return another_transport(self.group, mode), nccl
        if mode == "upstream" and os.environ.get(BACKEND) == mode:
            return set_up, nccl
        if mode == "v1":
            from sglang.srt.distributed.device_communicators.custom_all_reduce import CustomAllreduce

            return CustomAllreduce(self.group.cpu_group, self.group.device), nccl
        return None, second_nccl(self.group) if mode == "nccl-no-p2p" else nccl


def another_transport(group, name):
    from sgl_pcie.communicator import create

    before = os.environ.get(BACKEND)
    os.environ[BACKEND] = name
    try:
        return create(group.cpu_group, group.device)
    finally:
        os.environ.pop(BACKEND)
        if before is not None:
            os.environ[BACKEND] = before


def second_nccl(group):
    """SGLang's NCCL communicator on a copy of the library, which is bound to itself, not to the first."""
    from sglang.srt.distributed.device_communicators.pynccl import PyNcclCommunicator

    loaded = sorted(line.split()[-1] for line in open("/proc/self/maps") if "/libnccl.so" in line)[0]
    copy = os.path.join(tempfile.mkdtemp(), "libnccl.so.2")
    shutil.copy(loaded, copy)
    log = os.environ.get("DECODE_OUT", "/dev/null")
    asked = {"NCCL_P2P_DISABLE": "1", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": log + ".nccl-no-p2p.%p"}
    os.environ.update(asked)
    try:
        ctypes.CDLL(copy, mode=os.RTLD_LOCAL | os.RTLD_DEEPBIND)
        return PyNcclCommunicator(group.cpu_group, group.device, copy)
    finally:
        for name in asked:
            del os.environ[name]


def run_once(runner, arguments, batch, mode, rank, output):
    requests = bench.prepare_synthetic_inputs_for_latency_test(batch, arguments.input_len[0])
    silent = lambda *a, **k: None  # noqa: E731
    return bench.latency_test_run_once(
        mode,
        runner,
        silent,
        requests,
        batch,
        arguments.input_len[0],
        output,
        0,
        False,
        False,
        ("GPU",),
        "",
        "all",
        rank,
    )


def graph_times(mode):
    """What a replay takes, and the median of each rank.

    A rank that begins earlier waits in its first all-reduce for the others: of each replay the time of the rank that
    began last counts, which is the shortest. Without an all-reduce nobody waits: then the slowest GPU's, whose pace the
    others would have.
    """
    ranks = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, REPLAYS.milliseconds(), group=parallel_state.get_tp_group().cpu_group)
    medians = [statistics.median(times) for times in ranks]
    return max(medians) if mode == "none" else statistics.median(map(min, zip(*ranks))), medians


def measure(runner, arguments, mode, rank, emit):
    for repeat in range(REPEATS):
        for batch in arguments.batch_size:
            REPLAYS.events.clear()
            REPLAYS.on = True
            result = run_once(runner, arguments, batch, mode, rank, arguments.output_len[0])
            REPLAYS.on = False
            graph, medians = graph_times(mode)
            emit(
                mode=mode,
                batch=batch,
                repeat=repeat,
                step_ms=round(result["median_decode_latency"] * 1e3, 4),
                tokens_per_s=round(result["median_decode_throughput"], 1),
                graph_ms=round(graph, 4),
                rank_ms=[round(time, 4) for time in medians],
                prefill_ms=round(result["prefill_latency"] * 1e3, 2),
            )


def survive(runner, arguments, mode, rank, ranks, emit):
    """One rank dies in the middle of a decode: what the others get instead of a token."""
    REPLAYS.on, REPLAYS.left = True, KILL if rank == ranks - 1 else -1
    try:
        run_once(runner, arguments, arguments.batch_size[0], mode, rank, 4 * KILL)
        emit(survived="nothing was noticed", replays=len(REPLAYS.events))
    except Exception as error:
        with open(KILLED) as file:
            after = time.time() - float(file.read())
        emit(killed="rank %d" % (ranks - 1), raised_after_s=round(after, 2), replays=len(REPLAYS.events), error=repr(error)[:200])
    os._exit(0)  # the context is lost


def latency_test(server_args, port_args, arguments, gpu_id, rank):
    for name in ("initialize_moe_config", "initialize_fp8_gemm_config", "initialize_fp4_gemm_config"):
        if hasattr(bench, name):
            getattr(bench, name)(server_args)
    shared.separate()
    if shared.RANKS:
        shared.rename()
    bench.configure_logger(server_args, prefix=" TP%d" % rank)
    name = os.environ.get("DECODE_NAME", "decode")
    file = open(os.environ.get("DECODE_OUT", os.devnull), "a") if rank == 0 else None

    def emit(**values):
        if file:
            line = json.dumps(dict(run=name, **values))
            file.write(line + "\n")
            file.flush()
            print("DECODE", line, flush=True)

    runner, _ = bench.load_model(server_args, port_args, gpu_id, rank)
    model, group = runner.torch_runner, parallel_state.get_tp_group()
    found = group.ca_comm
    emit(
        communicator=type(found).__module__ + "." + type(found).__qualname__ if found is not None else None,
        disabled=found is None or bool(found.disabled),
        ranks=server_args.tp_size,
        gpus=torch.cuda.device_count(),
        nccl=".".join(map(str, torch.cuda.nccl.version())),
        load_s=round(time.time() - STARTED, 1),
    )
    arms = Arms(group)
    for number, mode in enumerate(os.environ.get("DECODE_MODES", "host,nccl,none").split(",")):
        found = arms.enter(mode)
        ALL_REDUCE.mode = mode
        ALL_REDUCE.captured.clear()
        model.init_device_graphs()
        captured = {str(size): count for size, count in sorted(ALL_REDUCE.captured.items())}
        emit(mode=mode, captured=captured, communicator=type(found).__name__, at_s=round(time.time() - STARTED, 1))
        if number == 0:  # prefill kernels, allocator, clocks
            run_once(runner, arguments, arguments.batch_size[-1], mode, rank, 32)
        if KILL:
            survive(runner, arguments, mode, rank, server_args.tp_size, emit)
        measure(runner, arguments, mode, rank, emit)
        emit(mode=mode, served={str(size): count for size, count in sorted(SERVED.calls.items())})
        SERVED.calls.clear()
    emit(done=round(time.time() - STARTED, 1))
    if server_args.tp_size > 1:
        bench.destroy_distributed_environment()


# bench_one_batch starts latency_test in spawned processes and pickles it by name.
latency_test.__module__ = "sglang.bench_one_batch"
latency_test.__qualname__ = "latency_test"
bench.latency_test = latency_test
if shared.RANKS:
    bench.maybe_reindex_device_id = shared.reindex


if __name__ == "__main__":
    import argparse
    import logging

    parser = argparse.ArgumentParser()
    bench.ServerArgs.add_cli_args(parser)
    bench.BenchArgs.add_cli_args(parser)
    options = parser.parse_args()
    server = bench.ServerArgs.from_cli_args(options)
    logging.basicConfig(level=getattr(logging, server.log_level.upper()), format="%(message)s")
    try:
        bench.main(server, bench.BenchArgs.from_cli_args(options))
    finally:
        bench.kill_process_tree(os.getpid(), include_parent=False)
