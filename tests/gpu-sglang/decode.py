"""Decode speed of a real SGLang at tensor parallelism, with the all-reduce switched within one process.

    decode.py [arguments of sglang.bench_one_batch]

Environment: DECODE_MODES, a comma list; each is captured anew and timed on the same weights:
    asis   what SGLang set up (with the flag: ours)
    nccl   no custom all-reduce
    v1     SGLang's own custom all-reduce
    none   no all-reduce at all: the limit, and what the cost of one is measured against
DECODE_REPEATS (default 3), DECODE_OUT (a file for JSON lines), DECODE_NAME (of the run).

Per batch size: median decode step, tokens per second, time of the graph's replay; per mode: all-reduces captured.
"""

import json
import os
import statistics
import time

import sglang.bench_one_batch as bench
import torch
from sglang.srt.distributed import parallel_state

STARTED = time.time()
REPEATS = int(os.environ.get("DECODE_REPEATS", "3"))


class AllReduce:
    """GroupCoordinator.all_reduce, counted while a graph is captured, and left out in mode none."""

    def __init__(self):
        self.mode, self.captured = "asis", {}
        inner = parallel_state.GroupCoordinator.all_reduce

        def all_reduce(group, x):
            if group.world_size > 1 and torch.cuda.is_current_stream_capturing():
                size = x.numel() * x.element_size()
                self.captured[size] = self.captured.get(size, 0) + 1
            return x if self.mode == "none" and group.world_size > 1 else inner(group, x)

        parallel_state.GroupCoordinator.all_reduce = all_reduce


class Replays:
    """CUDA events around each replay of a graph."""

    def __init__(self):
        self.events, self.on = [], False
        inner = torch.cuda.CUDAGraph.replay

        def replay(graph):
            if not self.on:
                return inner(graph)
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            inner(graph)
            end.record()
            self.events.append((begin, end))

        torch.cuda.CUDAGraph.replay = replay

    def median_ms(self):
        return statistics.median(begin.elapsed_time(end) for begin, end in self.events)


ALL_REDUCE, REPLAYS = AllReduce(), Replays()


def communicators(group, modes):
    """What ca_comm is in each mode."""
    made = {"asis": group.ca_comm, "nccl": None, "none": group.ca_comm}
    if "v1" in modes:
        from sglang.srt.distributed.device_communicators.custom_all_reduce import CustomAllreduce

        made["v1"] = CustomAllreduce(group.cpu_group, group.device)
    return made


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


def measure(runner, arguments, mode, rank, emit):
    for repeat in range(REPEATS):
        for batch in arguments.batch_size:
            REPLAYS.events.clear()
            REPLAYS.on = True
            result = run_once(runner, arguments, batch, mode, rank, arguments.output_len[0])
            REPLAYS.on = False
            emit(
                mode=mode,
                batch=batch,
                repeat=repeat,
                step_ms=round(result["median_decode_latency"] * 1e3, 4),
                tokens_per_s=round(result["median_decode_throughput"], 1),
                graph_ms=round(REPLAYS.median_ms(), 4),
            )


def latency_test(server_args, port_args, arguments, gpu_id, rank):
    for name in ("initialize_moe_config", "initialize_fp8_gemm_config", "initialize_fp4_gemm_config"):
        if hasattr(bench, name):
            getattr(bench, name)(server_args)
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
    modes = os.environ.get("DECODE_MODES", "asis,nccl,none").split(",")
    comms = communicators(group, modes)
    found = comms["asis"]
    emit(
        communicator=type(found).__module__ + "." + type(found).__qualname__ if found is not None else None,
        disabled=found is None or bool(found.disabled),
        nccl=".".join(map(str, torch.cuda.nccl.version())),
        load_s=round(time.time() - STARTED, 1),
    )
    for number, mode in enumerate(modes):
        ALL_REDUCE.mode, group.ca_comm = mode, comms[mode]
        ALL_REDUCE.captured.clear()
        model.init_device_graphs()
        emit(mode=mode, captured={str(size): count for size, count in sorted(ALL_REDUCE.captured.items())})
        if number == 0:  # prefill kernels, allocator, clocks
            run_once(runner, arguments, arguments.batch_size[-1], mode, rank, 32)
        measure(runner, arguments, mode, rank, emit)
    emit(done=round(time.time() - STARTED, 1))
    if server_args.tp_size > 1:
        bench.destroy_distributed_environment()


# bench_one_batch starts latency_test in spawned processes and pickles it by name.
latency_test.__module__ = "sglang.bench_one_batch"
latency_test.__qualname__ = "latency_test"
bench.latency_test = latency_test


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
