"""What the tests here share: bundles made of recordings, pages made of bundles."""

import copy
import functools
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MACHINES = ROOT / "tests" / "machine" / "machines"
RECORDED = ROOT / "tests" / "bench" / "recorded"
CLI, BENCH_TOOL, PLOT_TOOL = (os.environ[name] for name in ("SGL_PCIE", "BENCH_TOOL", "PLOT_TOOL"))
UUIDS = ["GPU-11111111-1111-1111-1111-111111111111", "GPU-22222222-2222-2222-2222-222222222222"]
SHA = "51fe9a0c" * 8


def run(*words, feed=None, env=None):
    environment = {key: value for key, value in os.environ.items() if key != "GNUPLOT_LIB"}
    return subprocess.run([str(word) for word in words], input=feed, capture_output=True, text=True, check=False,
                          timeout=100, env=environment | (env or {}))  # fmt: skip


@functools.lru_cache
def measured_text():
    """bench.json of what two H200 printed."""
    stream = (RECORDED / "perf-w2.jsonl").read_text()
    done = run(BENCH_TOOL, "rows", ",".join(UUIDS), feed=stream)
    assert done.returncode == 0, done.stderr
    bench = json.loads(done.stdout)
    return json.dumps(bench | {"created": "2026-11-30T04:30:00Z", "driver": "580.159.04"})


def measured():
    return json.loads(measured_text())


def profile(bench):
    done = run(BENCH_TOOL, "profile", feed=json.dumps(bench))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check(name, status="PASS", **more):
    return {"id": name, "level": 2, "status": status, "expected": None, "actual": None, "unit": None,
            "duration_ms": 1.5, "remedy": None} | more  # fmt: skip


def status(**more):
    files = [{"path": f"sglang/srt/{name}.py", "set": "sglang", "state": "applied", "oid": "a" * 40,
              "expected_oid": "b" * 40} for name in ("one", "two")]  # fmt: skip
    return {
        "install": {"sglang": "0.5.23", "kernel": None, "layout": "wheel", "runtime": "present", "files": files},
        "pending": False,
        "flag": {"value": "1", "source": "install"},
        "extension": {"present": True, "sha256": SHA},
        "verdict": {"present": True, "fresh": True, "result": "PASS", "reasons": []},
    } | more


@functools.lru_cache
def recorded_text(machine):
    done = run(CLI, "report", "--from", MACHINES / f"{machine}.json")
    assert done.returncode == 0, done.stderr
    return done.stdout


def recorded(machine):
    """The bundle of a recording alone."""
    return json.loads(recorded_text(machine))


def whole():
    """A bundle of a machine where everything was done."""
    bundle = recorded("real-2xh200-guest")
    for gpu, uuid in zip(bundle["recording"]["gpus"], UUIDS):
        gpu["uuid"] = uuid
    bench = measured()
    bound = {"driver": "580.159.04", "gpu 0": UUIDS[0], "gpu 1": UUIDS[1], "libpar.so": SHA}
    content = profile(bench) | {"bound": bound}
    results = [{"backend": name, "world": 2, "gpus": UUIDS, "result": "PASS"} for name in ("push", "host")]
    results.append({"backend": "pull", "world": 2, "gpus": UUIDS, "result": "FAIL", "reason": "loads give garbage"})
    checks = [check(f"{kind}.{pair}") for kind in ("store", "host") for pair in ("0-1", "1-0")]
    checks.append(check("load.0-1", "FAIL", expected="every word", actual="0x7fff7fff", remedy="sgl-pcie verify --level 2"))
    checks.append(check("copy.0-1", expected=40, actual=48.2, unit="GB/s"))
    return copy.deepcopy(bundle) | {
        "status": status(),
        "verdict": {"schema": "sgl-pcie-verdict/1", "level": 3, "bound": bound, "results": results, "pairs": [], "checks": checks},
        "profile": {"fresh": True, "wins": True, "reason": None, "summary": "2 GPUs: to 8 MiB", "content": content},
        "bench": bench,
        "checks": [{"id": "acs", "what": "bridges", "level": "fail", "status": "clean", "reason": None}],
    }


class Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def make(self, bundle, expect=0):
        """The page of a bundle, or what is said where there is none."""
        (self.folder / "report.json").write_text(json.dumps(bundle))
        done = run(CLI, "report", "--from", self.folder / "report.json", "--out", self.folder / "report.html")
        self.assertEqual(done.returncode, expect, done.stderr[-2000:])
        return (self.folder / "report.html").read_text() if expect == 0 else done.stderr


def needs(*programs):
    """End with 77 where one is not there: no failure at home, but one in CI."""
    import shutil

    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        print("missing:", ", ".join(missing), "(scripts/install-deps.sh --test)", file=sys.stderr)
        sys.exit(1 if os.environ.get("SGL_PCIE_CI") == "1" else 77)
