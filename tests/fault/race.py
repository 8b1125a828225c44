#!/usr/bin/env python3
"""Many writers at once, some of them killed: no file is ever torn, and in the end the tree is old or new.

    race.py BUILD/bin/txn_prog [SECONDS]
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import faults  # noqa: E402

WRITERS = 4
KILLED = 0.3
# ok; drift: applied already; cannot: the lock was not to be had; interrupted: by a writer that was killed
EXPECTED = {0, 4, 5, faults.INTERRUPTED, -9}


class Race:
    def __init__(self, program, tree, goals, seconds):
        self.program, self.tree, self.goals = program, tree, goals
        self.until = time.monotonic() + seconds
        self.counts, self.failures = {}, []
        self.lock = threading.Lock()

    def write(self, seed):
        chance = random.Random(seed)
        while time.monotonic() < self.until:
            command = chance.choice(["apply", "revert", "recover"])
            child = subprocess.Popen(self.program.argv(command, self.tree), stdout=subprocess.DEVNULL,
                                     stderr=subprocess.PIPE, text=True)
            if chance.random() < KILLED:
                time.sleep(chance.random() * 0.01)
                child.kill()
            said = child.communicate()[1]
            self.count(command, child.returncode, said)

    def count(self, command, status, said):
        with self.lock:
            self.counts[command, status] = self.counts.get((command, status), 0) + 1
            if status not in EXPECTED or (command == "recover" and status == 4):
                self.failures.append(f"{command} exits {status}: {said}")

    def read(self):
        """What Python would import meanwhile."""
        files = {path for goal in self.goals for path, what in goal.items() if what[0] == "file"}
        looks = 0
        while time.monotonic() < self.until:
            for path in files:
                self.look(path)
            looks += 1
        self.counts["looks at the tree", 0] = looks

    def look(self, path):
        try:
            what = faults.entry(os.path.join(self.tree, path), False)
        except FileNotFoundError:
            what = None  # not there yet, or no more: right only where one of the trees lacks it
        if all(goal.get(path) != what for goal in self.goals):
            with self.lock:
                self.failures.append(f"'{path}' was seen as {what}")


def run(program, work, seconds):
    old, tree = os.path.join(work, "old"), os.path.join(work, "tree")
    program.make_old(old)
    faults.copy_tree(old, tree)
    faults.check(faults.run(program.argv("apply", tree)).returncode == 0, "apply without a fault failed")
    goals = [faults.snapshot(old), faults.snapshot(tree)]
    race = Race(program, tree, goals, seconds)
    threads = [threading.Thread(target=race.write, args=(seed,)) for seed in range(WRITERS)]
    threads.append(threading.Thread(target=race.read))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    faults.recover(program, tree, goals)
    print(", ".join(f"{command} {status}: {count}" for (command, status), count in sorted(race.counts.items())))
    return race.failures


def main():
    program = faults.Txn(os.path.abspath(sys.argv[1]))
    work = tempfile.mkdtemp(prefix="sgl-pcie-race-")
    try:
        failures = run(program, work, float(sys.argv[2]) if len(sys.argv) > 2 else 5)
    finally:
        shutil.rmtree(work)
    for failure in failures[:10]:
        print("FAILED:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
