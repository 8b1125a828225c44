#!/usr/bin/env python3
"""CPU time and memory of status, apply and revert on a released wheel, beside git apply on the same files and a bare start
of the programs.

    scripts/bench-cli.py [--program out/bin/sgl-pcie] [--version 0.5.23] [--runs 20]

Each figure is the median over the runs of user plus system time as the kernel accounts it for the finished process, and the
largest resident set, each process started by a C program that is smaller than any of them: a process has for its own what whoever
started it had resident. The tree is in this machine's default temporary folder.
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


# Runs its arguments; prints wait status, CPU seconds and peak KiB.
LAUNCHER = """
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct rusage used;
    int status;
    const pid_t pid = argc > 1 ? fork() : -1;

    if (pid == 0 && freopen("/dev/null", "w", stdout) && freopen("/dev/null", "w", stderr))
        execvp(argv[1], argv + 1);
    if (pid <= 0 || wait4(pid, &status, 0, &used) != pid)
        _exit(127);
    printf("%d %.6f %ld\\n", status, (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6, used.ru_maxrss);
    return 0;
}
"""

# Does nothing but start the library.
LIBGIT2 = "#include <git2.h>\nint main(void) { return git_libgit2_init() < 0; }\n"


def compiled(folder, name, source, *flags):
    program = os.path.join(folder, name)
    subprocess.run(["cc", "-xc", "-", "-o", program, *flags], check=True, input=source, text=True)
    return program


def once(launcher, command, cwd):
    """CPU seconds and peak KiB of one process."""
    done = subprocess.run([launcher, *command], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    status, seconds, peak = done.stdout.split()
    if status != "0":
        sys.exit(f"{' '.join(command)}: wait status {status}")
    return float(seconds), int(peak)


def measure(launcher, name, command, cwd, runs, before=lambda: None):
    figures = []
    for _ in range(runs + 1):
        before()
        figures.append(once(launcher, command, cwd))
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

        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "libgit2"], check=True, capture_output=True, text=True).stdout
        bare = compiled(scratch, "bare", LIBGIT2, *flags.split())
        launcher = compiled(scratch, "launcher", LAUNCHER)

        print(f"{'sglang ' + args.version:34}{'CPU ms':>9}{'min':>9}{'max':>9}{'peak MiB':>10}")
        measure(launcher, "status --site (stock)", [program, "status", "--site", str(site)], "/", args.runs)
        measure(launcher, "apply --site", [program, "apply", "--site", str(site)], "/", args.runs, lambda: run("revert"))
        measure(launcher, "status --site (patched)", [program, "status", "--site", str(site)], "/", args.runs)
        measure(launcher, "apply --site (nothing to do)", [program, "apply", "--site", str(site)], "/", args.runs)
        measure(launcher, "revert --site", [program, "revert", "--site", str(site)], "/", args.runs, lambda: run("apply"))
        measure(launcher, "status --python", [program, "status", "--python", python], "/", args.runs)
        measure(launcher, "apply --python", [program, "apply", "--python", python], "/", args.runs, lambda: run("revert"))
        measure(launcher, "python -I -c pass", [python, "-I", "-c", "pass"], "/", args.runs)
        tree = pathlib.Path(scratch, "tree")

        def fresh():
            shutil.rmtree(tree, ignore_errors=True)
            shutil.copytree(stock, tree)

        measure(launcher, "git apply, the same files", ["git", "apply", str(patch)], tree, args.runs, fresh)
        measure(launcher, "git_libgit2_init() alone", [bare], "/", args.runs)
        measure(launcher, "sgl-pcie --version", [program, "--version"], "/", args.runs)


if __name__ == "__main__":
    main()
