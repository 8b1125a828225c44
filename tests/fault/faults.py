#!/usr/bin/env python3
"""Kill a command, or fail its system calls, at every write, and look at what is left.

A command is run once under strace to list its write-type system calls. Then, for every one of them and every kind
of fault, it is run again on a fresh copy of the tree with that one call struck:

    kill      SIGKILL as the call is entered
    ENOSPC+   this call and every later one of its name fail: the disk stays full
    EIO       this call fails once          EIO+   it keeps failing
    EACCES    this call fails once

Afterwards the tree must be the old one (times included) or the new one, or `status` must say "interrupted"; then every
visible file is still whole, old or new, and `recover` must bring the tree to old or new. Interrupted trees that differ
are kept, and recover is itself killed at every write on each of them (and its calls fail on every tenth), until no new
kind of tree turns up.

Three programs are known: txn_prog (the transaction by itself), the real command line on an install, and on a source
checkout with both of its patch sets, whose files lie above and below the folder that is patched otherwise.

    faults.py txn BUILD/bin/txn_prog
    faults.py cli BUILD/bin/sgl-pcie [SITE_PACKAGES] [--recover-trees N]
    faults.py source BUILD/bin/sgl-pcie [--recover-trees N]

Without SITE_PACKAGES the newest released SGLang wheel that the patch set knows is used, of it only what the patches touch
and what an install is known by (tests/patches/real.py): sglang/srt/distributed/ and the dist-info folder.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time

WRITES = """write pwrite64 writev pwritev copy_file_range sendfile ftruncate truncate fallocate
open openat openat2 creat rename renameat renameat2 link linkat symlink symlinkat unlink unlinkat rmdir mkdir mkdirat
fsync fdatasync chmod fchmod fchmodat chown fchown fchownat setxattr fsetxattr lsetxattr removexattr fremovexattr
utimensat""".split()
OPENS = {"open", "openat", "openat2", "creat"}
KINDS = ["kill", "ENOSPC+", "EIO", "EIO+", "EACCES"]
INTERRUPTED = 10
SKIPPED = 77
SIDE = re.compile(r"\.sgl-pcie-([0-9a-f]{16})-")
LIMIT_S = 60
AGE = 1700000000
FAIL_EVERY = 10  # recover is killed on every kind of tree, its calls fail on every tenth


class Broken(Exception):
    """A promise of the transaction was not kept."""


# ---- programs under test ----


class Txn:
    """The small program over the transaction's own interface."""

    def __init__(self, program):
        self.program = program

    def make_old(self, tree):
        os.mkdir(tree)
        check(subprocess.run([self.program, "setup", tree]).returncode == 0, "setup failed")

    def argv(self, command, tree):
        return [self.program, command, tree]

    def pending(self, tree):
        out = run([self.program, "status", tree])
        check(out.returncode == 0, f"status failed: {out.stderr}")
        return out.stdout.strip() == "interrupted"


class Cli:
    """sgl-pcie --site on a copy of a real install."""

    def __init__(self, program, site):
        self.program = program
        self.site = site

    def make_old(self, tree):
        copy_tree(self.site, tree)

    def argv(self, command, tree):
        extra = [] if command == "recover" else ["--while-running"]
        return [self.program, command, "--site", tree] + extra

    def pending(self, tree):
        out = run([self.program, "status", "--site", tree, "--json"])
        return json.loads(out.stdout)["pending"]


class Source:
    """sgl-pcie --source on a checkout, both sets at once."""

    def __init__(self, program, work):
        sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "patches"))
        os.environ["SGL_PCIE"] = program
        import source

        self.program, self.source = program, source
        os.environ["SGL_PCIE_DATA"] = str(source.data(os.path.join(work, "data")))

    def make_old(self, tree):
        self.source.make(tree, repository=False)

    def argv(self, command, tree):
        extra = {"apply": ["--while-running", "--set", "sglang", "--set", "sgl-kernel"], "revert": ["--while-running"]}
        return [self.program, command, "--source", tree] + extra.get(command, [])

    def pending(self, tree):
        out = run([self.program, "status", "--source", tree, "--json"])
        return json.loads(out.stdout)["pending"]


# ---- trees ----


def copy_tree(source, target):
    subprocess.run(["cp", "-a", source, target], check=True)


def age(tree):
    """Give files a time in the past: a new image within the same second gets one more system call."""
    for folder, _, files in os.walk(tree):
        for name in files:
            os.utime(os.path.join(folder, name), (AGE, AGE))


def is_bytecode(path):
    return "__pycache__" in path.split("/") or path.endswith(".pyc")


def entry(path, times):
    st = os.lstat(path)
    if stat.S_ISLNK(st.st_mode):
        return ("link", os.readlink(path))
    if stat.S_ISDIR(st.st_mode):
        return ("dir", stat.S_IMODE(st.st_mode))
    with open(path, "rb") as file:
        content = file.read()
    owner = (st.st_uid, st.st_gid)
    return ("file", stat.S_IMODE(st.st_mode), owner, st.st_mtime_ns if times else 0, hashlib.sha256(content).hexdigest())


def snapshot(tree, times=False):
    """{path: what is there}, bytecode aside."""
    found = {}
    for folder, dirs, files in os.walk(tree):
        for name in dirs + files:
            full = os.path.join(folder, name)
            path = os.path.relpath(full, tree)
            if not is_bytecode(path):
                found[path] = entry(full, times)
    if not any(path.startswith(".sgl-pcie/") for path in found):
        found.pop(".sgl-pcie", None)  # an empty one means nothing: killed before or after everything
    return found


def digest(tree):
    """Equal for trees that differ only in a transaction's random id and in times."""
    total = hashlib.sha256()
    for path, what in sorted(snapshot(tree).items()):
        if path.startswith(".sgl-pcie/journal."):
            with open(os.path.join(tree, path), "rb") as file:
                text = re.sub(rb'"id": "[0-9a-f]*"', b"", file.read())
            what = hashlib.sha256(text).hexdigest()
        total.update(repr((SIDE.sub(".sgl-pcie-ID-", path), what)).encode())
    return total.hexdigest()


def describe(snap, expected):
    lines = []
    for path in sorted(set(snap) | set(expected)):
        if snap.get(path) != expected.get(path):
            lines.append(f"  {path}: found {snap.get(path)}, expected {expected.get(path)}")
    return "\n".join(lines[:10])


# ---- running ----


def check(truth, message):
    if not truth:
        raise Broken(message)


def environment():
    env = dict(os.environ, LC_ALL="C")
    env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":detect_leaks=0"  # it cannot run under strace
    return env


def run(argv, **more):
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S,
                          env=environment(), **more)


def strace(options, argv):
    return run(["strace", "-qq", "-e", "signal=none"] + options + ["--"] + argv)  # --seccomp-bpf loses signals


def is_target(name, args):
    if name in OPENS:
        return "O_CREAT" in args or name == "creat"
    return True


def list_writes(argv, log):
    """[(system call, which one of its name, arguments)], by running the command to its end."""
    out = strace(["-o", log, "-e", "trace=" + ",".join(WRITES)], argv)
    counts, points = {}, []
    with open(log, errors="replace") as lines:
        for line in lines:
            match = re.match(r"(?:\d+ +)?(\w+)\((.*)", line)
            if not match:
                continue
            name, args = match.groups()
            counts[name] = counts.get(name, 0) + 1
            if is_target(name, args):
                points.append((name, counts[name], args.strip()))
    return out.returncode, points


def strike(kind, point, argv, log):
    """Run the command with one fault, and make sure that it struck."""
    name, number, _ = point
    if kind == "kill":
        what = f"inject={name}:signal=KILL:when={number}"
    else:
        what = f"inject={name}:error={kind.rstrip('+')}:when={number}{'+' if kind.endswith('+') else ''}"
    out = strace(["-o", log, "-e", "trace=" + name, "-e", what], argv)
    with open(log, errors="replace") as lines:
        check(was_killed(out) if kind == "kill" else "(INJECTED)" in lines.read(), "the fault did not strike")
    os.remove(log)
    return out


def was_killed(out):
    return out.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)


def is_output(point):
    """Writing the answer for the user: not part of the promise."""
    return point[0] in ("write", "writev") and re.match(r"[12],", point[2])


# ---- the promises ----


class Command:
    """One command on one tree: what it starts from, what it may lead to."""

    def __init__(self, program, name, start, goals, work):
        self.program, self.name, self.start, self.goals, self.work = program, name, start, goals, work
        self.old_times = snapshot(start, times=True)

    def fresh(self):
        tree = tempfile.mkdtemp(dir=self.work)
        os.rmdir(tree)
        copy_tree(self.start, tree)
        return tree


def check_whole(snap, goals):
    """In an interrupted tree every visible file is one of its images."""
    for path, what in snap.items():
        if path.startswith(".sgl-pcie") or SIDE.search(path) or what[0] != "file":
            continue
        check(any(goal.get(path) == what for goal in goals), f"'{path}' is neither old nor new: {what}")


def check_goal(snap, goals, when):
    check(snap in goals, f"{when}, the tree is neither old nor new:\nagainst old\n{describe(snap, goals[0])}\n"
          f"against new\n{describe(snap, goals[1])}")


def recover(program, tree, goals):
    out = run(program.argv("recover", tree))
    check(out.returncode == 0, f"recover exits {out.returncode}: {out.stderr or out.stdout}")
    check_goal(snapshot(tree), goals, "after recover")
    check(not program.pending(tree), "after recover, still interrupted")


def prove(program, tree, goals):
    """Is this tree interrupted? Then it must be recoverable, else old or new. Leaves the tree as it is."""
    snap = snapshot(tree)
    if not program.pending(tree):
        check_goal(snap, goals, "not interrupted")
        return False
    check_whole(snap, goals)
    again = tree + ".again"
    copy_tree(tree, again)
    try:
        recover(program, again, goals)
    finally:
        shutil.rmtree(again)
    return True


def judge(command, tree, out, point, pending):
    """Does the exit code tell the truth about a tree that prove() passed?"""
    killed = was_killed(out)
    failed = not killed and out.returncode != 0
    if pending:
        check(killed or failed, "it said ok, and yet the tree is interrupted")
        if failed and command.name != "recover":
            check(out.returncode == INTERRUPTED, f"interrupted, but the exit code is {out.returncode}: {out.stderr}")
        return
    if command.name == "recover":
        return
    is_old = snapshot(tree) == command.goals[0]
    if is_old:
        check(snapshot(tree, times=True) == command.old_times, "the old tree is back, but not its times")
    if failed and not is_output(point):
        check(is_old, "it failed, and yet the tree is new")
    if not killed and not failed:
        check(not is_old, "it said ok, and yet the tree is old")


def refuses(program, tree, name):
    """A command that would write must not touch an interrupted tree."""
    before = snapshot(tree, times=True)
    out = run(program.argv(name, tree))
    check(out.returncode == INTERRUPTED, f"{name} on an interrupted tree exits {out.returncode}, not {INTERRUPTED}")
    check(snapshot(tree, times=True) == before, f"{name} wrote to an interrupted tree")


# ---- the search ----


class Search:
    """Every kind of tree is proven once: what status and recover do depends on nothing but the tree."""

    def __init__(self, jobs, kinds, work):
        self.pool = concurrent.futures.ThreadPoolExecutor(jobs)
        self.kinds, self.work = kinds, work
        self.lock = threading.Lock()
        self.proven = {}  # digest -> interrupted?
        self.kept = {}  # digest -> folder of an interrupted tree
        self.runs = 0
        self.failures = []

    def one(self, command, kind, point):
        tree = command.fresh()
        try:
            out = strike(kind, point, command.program.argv(command.name, tree), tree + ".log")
            judge(command, tree, out, point, self.is_interrupted(command, tree))
        except (Broken, subprocess.TimeoutExpired, ValueError, KeyError) as why:
            with self.lock:
                self.failures.append(f"{command.name} with {kind} at {point[0]} number {point[1]} "
                                     f"({point[2][:100]}): {why}")
        finally:
            shutil.rmtree(tree, ignore_errors=True)
            with self.lock:
                self.runs += 1

    def is_interrupted(self, command, tree):
        key = digest(tree)
        with self.lock:
            if key in self.proven:
                return self.proven[key]
        pending = prove(command.program, tree, command.goals)
        if pending and command.name != "recover":
            refuses(command.program, tree, command.name)
        with self.lock:
            self.proven[key] = pending
            if pending and key not in self.kept:
                self.kept[key] = tempfile.mkdtemp(dir=self.work) + "/tree"
                copy_tree(tree, self.kept[key])
        return pending

    def strike_all(self, command, kinds):
        tree = command.fresh()
        log = tree + ".log"
        _, points = list_writes(command.program.argv(command.name, tree), log)
        shutil.rmtree(tree)
        os.remove(log)
        jobs = [self.pool.submit(self.one, command, kind, point) for point in points for kind in kinds
                if not (is_output(point) and kind != "kill")]
        for job in jobs:
            job.result()
        return points

    def explore(self, program, name, start, goals, recover_trees):
        began = time.monotonic()
        self.kept, self.proven, self.runs = {}, {}, 0
        points = self.strike_all(Command(program, name, start, goals, self.work), self.kinds)
        first = self.runs
        done, recover_writes = set(), 0
        while True:
            todo = [key for key in self.kept if key not in done]
            if recover_trees is not None:
                todo = spread(todo, recover_trees - len(done))
            if not todo:
                break
            for key in todo:
                done.add(key)
                command = Command(program, "recover", self.kept[key], goals, self.work)
                kinds = self.kinds if len(done) % FAIL_EVERY == 1 else ["kill"]
                recover_writes += len(self.strike_all(command, kinds))
        print(f"{name}: {len(points)} writes struck {first} times, {len(self.kept)} kinds of interrupted tree; on "
              f"{len(done)} of them recover struck {self.runs - first} times at {recover_writes} writes; "
              f"{time.monotonic() - began:.1f} s", flush=True)


def spread(items, count):
    """At most count of the items, evenly over the list."""
    if count <= 0:
        return []
    step = max(1, -(-len(items) // count))
    return items[::step]


def explore_both(search, program, work, recover_trees):
    """apply from the old tree, then revert from the new one."""
    stock, patched = os.path.join(work, "stock"), os.path.join(work, "patched")
    program.make_old(stock)
    age(stock)
    copy_tree(stock, patched)
    out = run(program.argv("apply", patched))
    check(out.returncode == 0, f"apply without a fault exits {out.returncode}: {out.stderr}")
    old, new = snapshot(stock), snapshot(patched)
    check(old != new, "apply changes nothing")
    search.explore(program, "apply", stock, [old, new], recover_trees)
    search.explore(program, "revert", patched, [new, old], recover_trees)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", choices=["txn", "cli", "source"])
    parser.add_argument("binary")
    parser.add_argument("site", nargs="?", help="with cli: a site-packages folder with SGLang, of which copies are made")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--recover-trees", type=int, help="strike recover on at most this many kinds of tree")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    return parser.parse_args()


def released_site(work):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "patches"))
    import real

    print(f"on the released wheel of SGLang {real.NEWEST}, of it sglang/srt/distributed/ and the dist-info folder")
    return str(real.site(real.NEWEST, os.path.join(work, "site-packages")))


def main():
    args = parse_args()
    if not shutil.which("strace"):
        print("faults.py: strace is not installed")
        return SKIPPED
    binary = os.path.abspath(args.binary)
    with tempfile.TemporaryDirectory(prefix="sgl-pcie-faults-") as work:
        if args.program == "txn":
            program = Txn(binary)
        elif args.program == "source":
            program = Source(binary, work)
        else:
            program = Cli(binary, os.path.abspath(args.site) if args.site else released_site(work))
        search = Search(args.jobs, args.kinds.split(","), work)
        explore_both(search, program, work, args.recover_trees)
    for failure in search.failures[:20]:
        print("FAILED:", failure)
    print(f"{len(search.failures)} promises broken")
    return 1 if search.failures else 0


if __name__ == "__main__":
    sys.exit(main())
