"""As `sgl-pcie-gpu perf --stream` speaks, where there is no GPU: the figures are of a formula near what two H200 showed
through host memory. FAKE_BENCH, a comma list, makes it

    slow:ALGORITHM   take three times as long      wrong:ALGORITHM  give wrong elements, exit 7
    noise:SEED       differ by up to 1 % a figure  stock            lose to NCCL at every size
    hang, die        never end, kill itself        garbage          print a line that is no JSON
    stop             end well before the result    name             call the GPU what a terminal obeys
    no-nccl          find no NCCL                  touch:FILE       change a file while it measures
    folder:PLACE     make a folder there
"""

import argparse
import json
import os
import random
import signal
import sys
import time

NAMES = {
    "host": ("one-shot", "two-shot", "one-shot-tagged", "two-shot-tagged", "one-shot-chunked", "two-shot-chunked"),
    "push": ("one-shot", "two-shot", "one-shot-chunked", "two-shot-chunked"),
    "pull": ("one-shot", "two-shot"),
}
# Microseconds of an empty message, and per KiB.
COST = {
    "one-shot": (3.0, 0.048),
    "two-shot": (4.0, 0.046),
    "one-shot-tagged": (4.2, 0.042),
    "two-shot-tagged": (4.6, 0.041),
    "one-shot-chunked": (8.0, 0.040),
    "two-shot-chunked": (8.3, 0.0355),
}
FASTER = {"host": 1.0, "push": 0.8, "pull": 0.9}
NCCL = (9.8, 0.041)
SIZES = [2048, 4096, 8192, 16384, 43008] + [1 << power for power in range(16, 25)]
QUICK = [4096, 16384, 43008, 131072, 524288, 2097152]


def told(key):
    """The values that FAKE_BENCH gives a key; [""] for a key without one."""
    found = [word.partition(":") for word in os.environ.get("FAKE_BENCH", "").split(",")]
    return [value for name, _, value in found if name == key]


DICE = random.Random(told("noise")[0]) if told("noise") else None


def span(us):
    us *= 1 + DICE.uniform(-0.01, 0.01) if DICE else 1
    return {"us": round(us, 3), "p10": round(us * 0.99, 3), "p90": round(us * 1.01, 3), "n": 20}


def say(**line):
    print(json.dumps(line, sort_keys=True), flush=True)


def row(by, name, transport, world, size, us, wrong):
    times = span(us) if wrong == 0 or wrong is None else None
    say(
        kind="row", group=0, world=world, dtype="bf16", bytes=size, count=size // 2, by=by, name=name, transport=transport,
        graph=times, step=times, eager=times, in_place=None, wrong=wrong,
        cut={"lanes": 0, "threads": 0, "chunk": 0} if by == "ours" else None, algbw=1.0, busbw=1.0,
        model_us=round(us / 1.5, 3) if by == "ours" else None,
    )  # fmt: skip


def size_of(text):
    return int(text[:-1]) << {"K": 10, "M": 20}[text[-1]] if text[-1] in "KM" else int(text)


def measure(world, transports, sizes):
    wrong = 0
    for at, size in enumerate(sizes):
        print("[%d/%d %ds] world %d, bf16, %d bytes" % (at + 1, len(sizes), len(sizes) - at, world, size), file=sys.stderr)
        nccl = (NCCL[0] + NCCL[1] * size / 1024) * (0.2 if told("stock") else 1) * world / 2
        if not told("no-nccl"):
            row("nccl", "nccl", None, world, size, nccl, None)
        for transport in transports:
            for shape in NAMES[transport]:
                name = "%s-%s" % (transport, shape)
                us = (COST[shape][0] + COST[shape][1] * size / 1024) * FASTER[transport] * world / 2
                elements = 17 if name in told("wrong") and size > 16384 else 0
                wrong += elements
                row("ours", name, transport, world, size, us * (3 if name in told("slow") else 1), elements)
    return wrong


def main():
    words = argparse.ArgumentParser()
    words.add_argument("command", choices=["perf"])
    for name in ("budget", "world", "transport", "limit", "types", "sizes"):
        words.add_argument("--" + name)
    for name in ("stream", "quick", "json"):
        words.add_argument("--" + name, action="store_true")
    given = words.parse_args()
    visible = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
    world = int(given.world)
    assert given.stream and float(given.budget) > 0 and float(given.limit) > 0 and len(visible) == world, sys.argv
    sizes = [size_of(s) for s in given.sizes.split(",")] if given.sizes else QUICK if given.quick else SIZES
    say(kind="start", gpus=[{"uuid": u, "name": "NVIDIA FAKE" + ("\033[2J" if told("name") else ""), "device": i, "bus": ""} for i, u in enumerate(visible)])
    say(
        kind="group", group=0, world=world, gpus=list(range(world)), transports=given.transport.split(","),
        links={"node_us": 0.5, "host_us": 1.6, "host_read_gbs": 50.0, "host_write_gbs": 52.0, "host_both_gbs": 84.0,
               "peer_us": None, "peer_read_gbs": None, "peer_write_gbs": None},
        nccl=None if told("no-nccl") else {
            "name": "nccl", "version": "2.28.9", "channels": 4, "via": "SHM/direct/direct", "environment": "", "path": "/x"
        },
    )  # fmt: skip
    for file in told("touch"):
        with open(file, "a", encoding="ascii") as out:
            out.write("x")
    for place in told("folder"):
        os.mkdir(place)
    if told("die"):
        os.kill(os.getpid(), signal.SIGKILL)
    if told("garbage"):
        print('{"kind": "row", "bytes": nan}')
    wrong = measure(world, given.transport.split(","), sizes)
    if told("hang"):
        time.sleep(1000)
    if told("stop"):
        return 0
    code = 7 if wrong else 0
    words = "%d wrong elements" % wrong
    check = {"id": "perf/%d" % world, "status": "FAIL" if wrong else "PASS", "code": code, "actual": words, "duration_ms": 1}
    say(kind="end", command="perf", schema="sgl-pcie/1", exit_code=code, message=words, checks=[check], unmeasured=0)
    return code


if __name__ == "__main__":
    sys.exit(main())
