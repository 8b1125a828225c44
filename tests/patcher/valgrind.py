"""apply, status, revert and recover under valgrind, on a released wheel and in a git checkout: no invalid access, no leak, no descriptor left open.

    valgrind.py SGL_PCIE
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

os.environ["SGL_PCIE"] = sys.argv[1]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "patches"))
import real
import source

COMMANDS = (("status",), ("apply", "--dry-run", "--diff"), ("apply",), ("apply",), ("status", "--json"), ("revert",), ("recover",))
BOTH = ("--set", "sglang", "--set", "sgl-kernel")
IN_CHECKOUT = (("status",), ("apply", "--diff", *BOTH), ("status", "--json"), ("revert",), ("recover",))


def check(program, words, *target):
    command = ["valgrind", "--quiet", "--error-exitcode=99", "--leak-check=full", "--show-leak-kinds=definite,indirect",
               "--errors-for-leak-kinds=definite,indirect", "--track-fds=yes", program, *words, *target]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    left_open = [fd for fd in re.findall(r"Open (?:file descriptor|\S+ socket) (\d+)", done.stderr) if int(fd) > 2]
    if done.returncode != 0 or left_open:
        sys.exit(f"{' '.join(words)}: exit {done.returncode}\n{done.stderr}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        site, checkout = real.site("0.5.23", f"{folder}/site"), source.make(f"{folder}/checkout")
        for words in COMMANDS:
            check(sys.argv[1], words, "--site", str(site))
        os.environ["SGL_PCIE_DATA"] = str(source.data(f"{folder}/data"))
        for words in IN_CHECKOUT:
            check(sys.argv[1], words, "--source", str(checkout))


if __name__ == "__main__":
    main()
