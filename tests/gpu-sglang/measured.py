"""A profile by bench's own reader and tuner, out of what sgl-pcie-gpu measures here, where ranks share a GPU.

    measured.py --pack PACK --state FOLDER

`sgl-pcie bench` needs a GPU for each rank and a verdict, which needs two; this goes the same way behind them: `perf
--stream`, and tests/bench's bench_tool, which is nothing but bench's functions. What is measured is how ranks fare that
share a link and a GPU, against NCCL over sockets: a true profile of a machine that nobody wants.
"""

import argparse
import json
import os
import subprocess
import sys

import shared

# NCCL for rank processes that share a GPU: each is a host of its own.
NCCL = """#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void separate(void)
{
    char name[32];
    snprintf(name, sizeof name, "process-%d", (int)getpid());
    setenv("NCCL_HOSTID", name, 1);
}
"""


def nccl(folder):
    import nvidia.nccl

    real = os.path.join(list(nvidia.nccl.__path__)[0], "lib")
    made = os.path.join(folder, "libnccl-shared.so")
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", made, "-Wl,--no-as-needed", "-Wl,-rpath," + real]
    subprocess.run([*command, "-L" + real, "-l:libnccl.so.2"], input=NCCL.encode(), check=True)
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pack", required=True)
    parser.add_argument("--state", required=True)
    options = parser.parse_args()
    site, world = os.path.join(options.pack, "site"), shared.RANKS
    os.makedirs(options.state, exist_ok=True)
    shared.rename()  # the names that the ranks will have
    from sgl_pcie import machine, nvidia, state

    perf = [os.path.join(site, "sgl_pcie", "sgl-pcie-gpu"), "perf", "--stream", "--budget", "20", "--limit", "60"]
    perf += ["--world", str(world), "--gpus", ",".join(["0"] * world), "--transport", "host,push", "--types", "bf16"]
    perf += ["--sizes", "2K,16K,42K,128K,512K,2M", "--nccl", nccl(options.state)]
    shared.separate()
    lines = subprocess.run(perf, stdout=subprocess.PIPE, check=True).stdout
    uuids = ",".join(shared.name(nvidia.cuda_uuid(0), rank) for rank in range(world))
    tool = os.path.join(options.pack, "bin", "bench_tool")
    tuned = subprocess.run([tool, "rows", uuids], input=lines, stdout=subprocess.PIPE, check=True).stdout
    profile = json.loads(subprocess.run([tool, "profile"], input=tuned, stdout=subprocess.PIPE, check=True).stdout)
    profile["bound"] = machine.now()
    place = os.path.join(options.state, state.key(site))
    os.makedirs(place, exist_ok=True)
    with open(os.path.join(place, "profile.json"), "w") as file:
        json.dump(profile, file)
    for table in profile["tables"]:
        print("MEASURED", [(e["max_bytes"], e["algorithm"], e["us"], e["stock_us"]) for e in table["entries"]])
    return 0


if __name__ == "__main__":
    sys.exit(main())
