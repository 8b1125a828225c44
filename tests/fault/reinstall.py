#!/usr/bin/env python3
"""SGLang is reinstalled, or upgraded, between an interrupted write and recover.

    reinstall.py BUILD/bin/sgl-pcie

apply and revert are killed as they rename, one rename after the other, on a released SGLang; then another release is put
over it as pip does, by new files. recover must leave every file of that release as it is, remove all of ours, and so leave
an install that can be patched; also when recover itself is killed at every write.
"""

import os
import pathlib
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "patches"))
import faults  # noqa: E402
import real  # noqa: E402

OUTCOME = "rolled back; files that were reinstalled since are left as they are"


def releases():
    """The newest release, and the latest before it none of whose patched texts is the same."""
    newest = real.RELEASES[real.NEWEST]["files"]
    for version in reversed(real.PATCHED):
        files = real.RELEASES[version]["files"]
        if files.keys() == newest.keys() and not set(files.items()) & set(newest.items()):
            return version, real.NEWEST
    raise SystemExit("no two releases that differ in every text")


class Reinstall:
    def __init__(self, program, work, old, new):
        self.program, self.work = program, work
        self.stock, self.patched, self.other = (os.path.join(work, name) for name in ("stock", "patched", "other"))
        self.files = real.RELEASES[new]["files"]
        real.site(old, self.stock)
        real.site(new, self.other)
        faults.copy_tree(self.stock, self.patched)
        self.run("apply", self.patched)
        self.runs = 0

    def run(self, command, tree):
        out = faults.run(self.program.argv(command, tree))
        faults.check(out.returncode == 0, f"{command} exits {out.returncode}: {out.stderr or out.stdout}")
        return out.stdout

    def upgrade(self, tree):
        """As pip: what was there goes, what comes has inodes of its own."""
        for name in os.listdir(tree):
            if name.startswith("sglang-"):
                shutil.rmtree(os.path.join(tree, name))
        for path in self.files:
            os.unlink(os.path.join(tree, path))
        shutil.copytree(self.other, tree, dirs_exist_ok=True)

    def check_upgraded(self, tree):
        faults.check(not self.program.pending(tree), "still interrupted")
        for path, pre in self.files.items():
            found = real.blob_id(pathlib.Path(tree, path).read_bytes())
            faults.check(found == pre, f"'{path}' is not the other release's any more")
        left = [path for path in faults.snapshot(tree) if faults.SIDE.search(path)]
        faults.check(not left, f"side files are left: {left}")

    def interrupted(self, command, start, number):
        """A tree whose command was killed at this rename, with the other release over it; None past the last one."""
        tree = tempfile.mkdtemp(dir=self.work)
        os.rmdir(tree)
        faults.copy_tree(start, tree)
        out = faults.strace(["-o", "/dev/null", "-e", "trace=renameat,renameat2", "-e",
                             f"inject=renameat,renameat2:signal=KILL:when={number}"], self.program.argv(command, tree))
        if not faults.was_killed(out):
            return None
        self.upgrade(tree)
        return tree

    def recover_once(self, tree, command):
        said = self.run("recover", tree)
        self.check_upgraded(tree)
        if command == "apply":
            faults.check(not os.path.exists(os.path.join(tree, "sgl_pcie")), "the runtime is left")
        self.run("apply", tree)
        self.runs += 1
        return OUTCOME in said

    def recover_killed(self, tree, command):
        """Kill recover at each of its writes; every time the next one must do."""
        probe = tree + ".probe"
        faults.copy_tree(tree, probe)
        _, points = faults.list_writes(self.program.argv("recover", probe), probe + ".log")
        shutil.rmtree(probe)
        for point in points:
            faults.copy_tree(tree, probe)
            faults.strike("kill", point, self.program.argv("recover", probe), probe + ".log")
            self.recover_once(probe, command)
            shutil.rmtree(probe)

    def all_renames(self, command, start):
        number, left_alone = 1, 0
        while (tree := self.interrupted(command, start, number)) is not None:
            if number % 13 == 3:
                self.recover_killed(tree, command)
            left_alone += self.recover_once(tree, command)
            shutil.rmtree(tree)
            number += 1
        faults.check(left_alone > 0, f"no {command} ever left a file alone")
        print(f"{command}: killed at {number - 1} renames, {left_alone} times recover left the other release alone")


def main():
    if not shutil.which("strace"):
        print("reinstall.py: strace is not installed")
        return faults.SKIPPED
    old, new = releases()
    with tempfile.TemporaryDirectory(prefix="sgl-pcie-reinstall-") as work:
        program = faults.Cli(os.path.abspath(sys.argv[1]), None)
        test = Reinstall(program, work, old, new)
        print(f"SGLang {old}, then {new}")
        test.all_renames("apply", test.stock)
        test.all_renames("revert", test.patched)
        print(f"{test.runs} recoveries")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except faults.Broken as why:
        print("FAILED:", why)
        sys.exit(1)
