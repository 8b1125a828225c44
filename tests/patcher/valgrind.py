"""apply, status, revert and recover under valgrind, on a released wheel: no invalid access, no leak, no descriptor left open.

    valgrind.py SGL_PCIE
"""

import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import wheels

COMMANDS = (("status",), ("apply", "--dry-run", "--diff"), ("apply",), ("apply",), ("status", "--json"), ("revert",), ("recover",))


def check(program, words, site):
    command = ["valgrind", "--quiet", "--error-exitcode=99", "--leak-check=full", "--show-leak-kinds=definite,indirect",
               "--errors-for-leak-kinds=definite,indirect", "--track-fds=yes", program, *words, "--site", str(site)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    left_open = [fd for fd in re.findall(r"Open (?:file descriptor|\S+ socket) (\d+)", done.stderr) if int(fd) > 2]
    if done.returncode != 0 or left_open:
        sys.exit(f"{' '.join(words)}: exit {done.returncode}\n{done.stderr}")


def main():
    with tempfile.TemporaryDirectory() as site:
        wheels.unpack("0.5.23", site)
        for words in COMMANDS:
            check(sys.argv[1], words, site)


if __name__ == "__main__":
    main()
