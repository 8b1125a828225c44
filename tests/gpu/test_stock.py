"""python -m sgl_pcie.stock where it cannot measure: one sentence, the right exit code, lines by the schema, nothing left."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "cli"), str(HERE.parent.parent / "python")]
import schema  # noqa: E402

from sgl_pcie import machine, stock  # noqa: E402


def run(*words, torch=None, limit=60):
    """With a module torch of this text; None: one that says it is not there."""
    with tempfile.TemporaryDirectory() as folder:
        text = torch or "raise ImportError('no torch here')"
        (pathlib.Path(folder) / "torch.py").write_text(text)
        path = os.pathsep.join([folder, str(HERE.parent.parent / "python")])
        return subprocess.run([sys.executable, "-m", "sgl_pcie.stock", *words], capture_output=True, text=True,
                              timeout=limit, env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"})


def lines(done):
    found = [json.loads(line) for line in done.stdout.splitlines()]
    for line in found:
        schema.validator("perf.schema.json").validate(line)
    return found


TORCH = """
class cuda:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: %d)
    can_device_access_peer = staticmethod(lambda a, b: %r)
"""

# Rank 0 is in a rendezvous that takes minutes to give up.
ALONE = """
import sys, time
if sys.argv[sys.argv.index("--rank") + 1] == "0":
    time.sleep(600)
%s
"""


class Refusals(unittest.TestCase):
    def refused(self, words, **more):
        done = run(**more)
        self.assertEqual((done.returncode, lines(done)[-1]["exit_code"], lines(done)[-1]["result"]), (5, 5, "error"))
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn(words, done.stderr)
        self.assertIn(words, lines(done)[-1]["message"])

    def test_without_torch(self):
        self.refused("torch cannot be imported: no torch here")

    def test_with_too_few_gpus(self):
        self.refused("torch sees 1 GPUs, 2 are needed", torch=TORCH % (1, True))

    def test_without_p2p(self):
        self.refused("needs P2P", torch=TORCH % (2, False))

    def test_a_rank_that_dies_is_named(self):
        self.refused("rank 1 ended with status -9", torch=ALONE % "import os\nos.kill(os.getpid(), 9)")

    def test_nobody_waits_for_one_that_failed_alone(self):
        start = time.monotonic()
        self.refused("torch cannot be imported: too bad", torch=ALONE % "raise ImportError('too bad')")
        self.assertLess(time.monotonic() - start, 20)

    def test_one_that_does_not_end_is_killed_with_its_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            text = "import os, time\nopen(os.path.join(%r, str(os.getpid())), 'w').close()\ntime.sleep(600)" % folder
            start = time.monotonic()
            done = run("--limit", "3", torch=text)
            self.assertLess(time.monotonic() - start, 20)
            self.assertEqual((done.returncode, lines(done)[-1]["exit_code"]), (8, 8))
            pids = [int(name) for name in os.listdir(folder)]
            self.assertEqual(len(pids), 2)
            for pid in pids:
                self.assertRaises(ProcessLookupError, os.kill, pid, 0)

    def test_ranks_end_with_a_parent_that_is_killed(self):
        with tempfile.TemporaryDirectory() as folder:
            text = "import os, time\nopen(os.path.join(%r, 'pid%%d' %% os.getpid()), 'w').close()\ntime.sleep(600)"
            (pathlib.Path(folder) / "torch.py").write_text(text % folder)
            path = os.pathsep.join([folder, str(HERE.parent.parent / "python")])
            parent = subprocess.Popen([sys.executable, "-m", "sgl_pcie.stock"], stdout=subprocess.DEVNULL,
                                      env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"})
            self.addCleanup(parent.wait)
            wait_for(lambda: len(list(pathlib.Path(folder).glob("pid*"))) == 2)
            parent.kill()
            pids = [int(found.name[3:]) for found in pathlib.Path(folder).glob("pid*")]
            wait_for(lambda: not any(alive(pid) for pid in pids))

    def test_usage(self):
        for words in (["--world", "9"], ["--sizes", "x"], ["--types", "int8"], ["--calls", "0"]):
            self.assertEqual(run(*words).returncode, 2, words)


def alive(pid):
    try:
        return "Z" not in pathlib.Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def wait_for(true, seconds=20):
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise AssertionError("it did not happen within %d s" % seconds)
        time.sleep(0.05)


class Pieces(unittest.TestCase):
    def test_gpus_by_uuid_become_numbers_which_is_all_that_the_class_takes(self):
        known = [("0000:01:00.0", "GPU-a"), ("0000:02:00.0", "GPU-b"), ("0000:03:00.0", "GPU-c")]
        visible = mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES="GPU-c,GPU-a")
        with mock.patch.object(machine, "gpus", lambda: known), visible:
            self.assertEqual(stock.environment()["CUDA_VISIBLE_DEVICES"], "2,0")
        with mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES="1,0"):
            self.assertEqual(stock.environment()["CUDA_VISIBLE_DEVICES"], "1,0")

    def test_ours_is_off_in_the_ranks(self):
        with mock.patch.dict(os.environ, SGLANG_FORCE_CUSTOM_AR_PCIE="unsafe"):
            self.assertEqual(stock.environment()["SGLANG_FORCE_CUSTOM_AR_PCIE"], "0")

    def test_percentiles_lie_between_the_values(self):
        self.assertEqual(stock.quantile([1, 2, 3, 4, 5], 0.5), 3)
        self.assertEqual(stock.quantile([1, 2], 0.5), 1.5)
        self.assertEqual(stock.quantile([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], 0.9), 10)
        self.assertEqual(stock.quantile([7], 0.1), 7)

    def test_sizes(self):
        self.assertEqual(stock.sizes("2K,1M,43008"), [2048, 1048576, 43008])

    def test_torch_is_not_imported_with_the_package(self):
        code = "import sys; import sgl_pcie.stock; sys.exit('torch' in sys.modules)"
        self.assertEqual(subprocess.run([sys.executable, "-c", code], cwd=HERE.parent.parent / "python").returncode, 0)


if __name__ == "__main__":
    unittest.main()
