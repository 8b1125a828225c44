#!/usr/bin/env python3
"""CPU time and memory of status, apply and revert on a released wheel, beside git apply on the same files and a bare start
of the programs.

    scripts/bench-cli.py [--program out/bin/sgl-pcie] [--version 0.5.23] [--runs 20]

Each figure is the median over the runs of user plus system time as the kernel accounts it for the finished process, and the
largest resident set. The tree is on this machine's default temporary folder.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
import wheels  # noqa: E402


def once(command, cwd):
    """CPU seconds and peak KiB of one process."""
    pid = os.fork()
    if pid == 0:
        os.chdir(cwd)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.execvp(command[0], command)
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)}: wait status {status}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss


def bare_libgit2(folder):
    """A program that does nothing but start the library."""
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "libgit2"], check=True, capture_output=True, text=True).stdout
    source = "#include <git2.h>\nint main(void) { return git_libgit2_init() < 0; }\n"
    program = os.path.join(folder, "bare")
    subprocess.run(["cc", "-xc", "-", "-o", program, *flags.split()], check=True, input=source, text=True)
    return program


def measure(name, command, cwd, runs, before=lambda: None):
    figures = []
    for _ in range(runs + 1):
        before()
        figures.append(once(command, cwd))
    cpu = sorted(figure[0] * 1e3 for figure in figures[1:])
    peak = max(figure[1] for figure in figures) / 1024
    print(f"{name:34}{statistics.median(cpu):9.1f}{cpu[0]:9.1f}{cpu[-1]:9.1f}{peak:10.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "out/bin/sgl-pcie"))
    parser.add_argument("--version", default="0.5.23")
    parser.add_argument("--runs", type=int, default=20)
    args = parser.parse_args()
    program = os.path.abspath(args.program)

    with tempfile.TemporaryDirectory() as scratch:
        venv = pathlib.Path(scratch, "venv")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        (site,) = venv.glob("lib/python*/site-packages")
        python = str(venv / "bin/python")
        wheels.unpack(args.version, site, only=("sglang/",))
        stock = pathlib.Path(scratch, "stock")
        shutil.copytree(site / "sglang/srt/distributed", stock / "sglang/srt/distributed")
        patch = pathlib.Path(scratch, "all.patch")
        run = lambda *words: subprocess.run([program, *words, "--site", site], check=True, capture_output=True, text=True)
        patch.write_text(run("apply", "--dry-run", "--diff").stdout.split("\n\n", 1)[1].rsplit("\n\n", 1)[0] + "\n")

        print(f"{'sglang ' + args.version:34}{'CPU ms':>9}{'min':>9}{'max':>9}{'peak MiB':>10}")
        measure("status --site (stock)", [program, "status", "--site", str(site)], "/", args.runs)
        measure("apply --site", [program, "apply", "--site", str(site)], "/", args.runs, lambda: run("revert"))
        measure("status --site (patched)", [program, "status", "--site", str(site)], "/", args.runs)
        measure("apply --site (nothing to do)", [program, "apply", "--site", str(site)], "/", args.runs)
        measure("revert --site", [program, "revert", "--site", str(site)], "/", args.runs, lambda: run("apply"))
        measure("status --python", [program, "status", "--python", python], "/", args.runs)
        measure("apply --python", [program, "apply", "--python", python], "/", args.runs, lambda: run("revert"))
        measure("python -I -c pass", [python, "-I", "-c", "pass"], "/", args.runs)
        tree = pathlib.Path(scratch, "tree")

        def fresh():
            shutil.rmtree(tree, ignore_errors=True)
            shutil.copytree(stock, tree)

        measure("git apply, the same files", ["git", "apply", str(patch)], tree, args.runs, fresh)
        measure("git_libgit2_init() alone", [bare_libgit2(scratch)], "/", args.runs)
        measure("sgl-pcie --version", [program, "--version"], "/", args.runs)


if __name__ == "__main__":
    main()
