"""An install with a verdict, and a program for GPUs that says what it is told to."""

import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "verdict")]

from common import GPUS, Case, machine, real, schema, tree, verdict  # noqa: E402  (of tests/verdict)

TOOL = os.environ["BENCH_TOOL"]
RECORDED = HERE / "recorded"
FOUR = [*GPUS, "GPU-33333333-0000-0000-0000-000000000000", "GPU-44444444-0000-0000-0000-000000000000"]


def tool(*words, feed=None):
    done = subprocess.run([TOOL, *map(str, words)], input=feed, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout, done.stderr.strip()


def choices(table):
    return [(entry["max_bytes"], entry["algorithm"]) for entry in table["entries"]]


class Bench(Case):
    gpus = GPUS
    worlds = (2,)
    backends = ("host", "push")

    def setUp(self):
        super().setUp()
        self.environment["FAKE_GPUS"] = ",".join(self.gpus)
        self.site = self.install("site")
        program = self.site / "sgl_pcie" / "sgl-pcie-gpu"
        program.write_text('#!/bin/sh\nexec /usr/bin/python3 -B "%s" "$@"\n' % (HERE / "standin.py"))
        program.chmod(0o755)

    def prove(self, backends=None):
        bound = {**self.bound(self.site), "driver": "580.95.05"}
        content = verdict(bound)
        content["results"] = [
            {"backend": backend, "world": world, "gpus": self.gpus[:world], "result": "PASS"}
            for backend in backends or self.backends
            for world in self.worlds
        ]
        content["pairs"] = [{"backend": b, "gpus": self.gpus, "failed": []} for b in backends or self.backends]
        self.write(self.site, "verdict.json", content)

    def bench(self, *words, expect=0, **environment):
        return json.loads(self.cli("bench", "--site", self.site, "--json", *words, expect=expect, **environment))

    def file(self, name):
        found = list(self.state.glob("*/" + name))
        return found[0] if found else None

    def profile(self):
        return json.loads(self.file("profile.json").read_text())


__all__ = ["FOUR", "GPUS", "HERE", "RECORDED", "Bench", "choices", "machine", "real", "schema", "tool", "tree", "verdict"]
