#!/usr/bin/env python3
"""A power cut: is everything on disk before the journal says so, and the journal before anything relies on it?

A kill loses nothing that the kernel has taken; a power cut loses what was not synced. A run of txn_prog is traced, and
every change of the journal's name must be a barrier: before it, no file has bytes and no directory has entries that
were not synced (but for the state directory's own); after it, that directory, and the root where it has just been made
there, are synced before anything else is written.

    durable.py BUILD/bin/txn_prog
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

CALLS = "openat,write,pwrite64,ftruncate,fchmod,fchown,fsetxattr,utimensat,renameat,renameat2,linkat,unlinkat,mkdirat,fsync"
FD = r"\d+<([^>]*)>"
NAME = r'"([^"]*)"'
SKIPPED = 77


def trace(argv, log):
    subprocess.run(["strace", "-qq", "-y", "-e", "signal=none", "-e", "trace=" + CALLS, "-o", log, "--"] + argv,
                   check=True, stdout=subprocess.DEVNULL)
    with open(log, errors="replace") as lines:
        return [line for line in lines if re.search(r"= \d", line)]


def entries(line):
    """(kind, [(directory, name), ...]) of a call that changes names; else None."""
    match = re.match(rf"(\w+)\({FD}, {NAME}(?:, {FD}, {NAME})?", line)
    if not match or (match[1] == "openat" and "O_CREAT" not in line):
        return None
    if match[1] not in ("openat", "renameat", "renameat2", "linkat", "unlinkat", "mkdirat"):
        return None
    pairs = [(match[2], match[3])] + ([(match[4], match[5])] if match[4] else [])
    return match[1], pairs


def bytes_of(line):
    """The file whose bytes or attributes a call changes; else None."""
    match = re.match(rf"(?:write|pwrite64|ftruncate|fchmod|fchown|fsetxattr|utimensat)\({FD}", line)
    return match[1] if match else None


def is_journal(pairs):
    return any(name.startswith("journal.") and name != "journal.new" for _, name in pairs)


class Disk:
    """What a power cut would lose."""

    def __init__(self, root):
        self.root = root
        self.unsynced = {}  # file or directory -> the call that changed it
        self.barrier = set()  # directories that must be synced before anything else happens
        self.barriers = 0
        self.wrong = []

    def take(self, line):
        names, changed = entries(line), bytes_of(line)
        synced = re.match(rf"fsync\({FD}", line)
        if synced:
            self.unsynced.pop(synced[1], None)
            self.barrier.discard(synced[1])
        elif names:
            self.change_names(line, *names)
        elif changed and changed.startswith(self.root):
            self.note(changed, line)

    def change_names(self, line, _, pairs):
        if not pairs[-1][0].startswith(self.root):
            return
        own = {self.root, os.path.join(self.root, ".sgl-pcie")}
        if is_journal(pairs):
            self.barriers += 1
            for what, why in self.unsynced.items():
                if what not in own:
                    self.wrong.append(f"not on disk: {what}\n    changed by {why}    at {line}")
        for folder, _ in pairs:
            self.note(folder, line)
        if is_journal(pairs):
            self.barrier = own & set(self.unsynced)

    def note(self, what, line):
        if self.barrier and "AT_REMOVEDIR" not in line:
            self.wrong.append(f"relies on a journal that is not on disk: {line}")
        self.unsynced[what] = line


def look_at(argv, root, least):
    disk = Disk(root)
    with tempfile.NamedTemporaryFile() as log:
        for line in trace(argv, log.name):
            disk.take(line)
    if disk.barriers < least:
        disk.wrong.append(f"only {disk.barriers} changes of the journal seen, {least} expected")
    if disk.unsynced:
        disk.wrong.append(f"never synced: {sorted(disk.unsynced)}")
    print(f"{os.path.basename(argv[0])} {argv[1]}: {disk.barriers} barriers, {len(disk.wrong)} broken")
    for wrong in disk.wrong[:10]:
        print("FAILED:", wrong)
    return len(disk.wrong)


def main():
    if not shutil.which("strace"):
        print("durable.py: strace is not installed")
        return SKIPPED
    program = os.path.abspath(sys.argv[1])
    os.environ["ASAN_OPTIONS"] = "detect_leaks=0"  # it cannot run under strace
    with tempfile.TemporaryDirectory(prefix="sgl-pcie-durable-") as folder:
        root = os.path.realpath(folder)
        subprocess.run([program, "setup", root], check=True)
        broken = look_at([program, "apply", root], root, 4)
        broken += look_at([program, "revert", root], root, 4)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
