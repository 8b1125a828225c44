"""setup from a released wheel to a verdict, in one command; killed at any point and run again. The compiler is the one of
tests/build, the program for GPUs the stand-in of this folder."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "verdict"), str(HERE.parent / "build")]

import fake  # noqa: E402
from common import GPUS, Case, profile, real  # noqa: E402

PROGRAM = '#include <unistd.h>\nint main(int count, char **words) { return count > 0 ? execv("%s", words) : 1; }\n'


class Fixture(Case):
    def setUp(self):
        super().setUp()
        fake.make_toolkit(self.scratch / "toolkit")
        fake.make_data(self.scratch / "data")
        (self.scratch / "data/kernels/gpu/main.c").write_text(PROGRAM % os.environ["STANDIN"])
        self.site = self.scratch / "site"
        real.site("0.5.23", self.site)
        self.environment |= {
            "SGL_PCIE_DATA": str(self.scratch / "data"),
            "SGL_PCIE_NVCC": str(self.scratch / "toolkit/bin/nvcc"),
            "TMPDIR": str(self.scratch),
            "STANDIN_GPUS": "2",
        }
        self.words = ["setup", "--site", self.site, "--arch", "sm_90", "--json"]


class Setup(Fixture):
    def test_from_a_wheel_to_a_verdict_and_on_to_enabled(self):
        told = json.loads(self.cli(*self.words))
        self.assertEqual([step["command"] for step in told["steps"]][:5], ["recover", "doctor", "apply", "build", "verify"])
        self.assertTrue(self.shown(self.site)["fresh"])
        if "bench" not in self.cli("--help"):
            self.assertIn("not enabled", told["message"])
            self.write(self.site, "profile.json", profile(self.bound(self.site)))
            self.cli("enable", "--site", self.site)
        self.assertIn("enabled: nothing to do", self.cli("status", "--site", self.site))

    def test_a_failed_proof_is_undone(self):
        told = json.loads(self.cli(*self.words, expect=7, SGL_PCIE_INJECT="nan:0-1"))
        self.assertEqual(told["undone"], True)
        self.assertEqual([step["exit_code"] for step in told["steps"]][-2:], [7, 0])
        self.assertFalse((self.site / "sgl_pcie").exists())
        self.assertIn("stock: not patched", self.cli("status", "--site", self.site))

    def test_killed_anywhere_and_run_again(self):
        start = time.monotonic()
        self.cli(*self.words)
        whole = time.monotonic() - start
        for part in range(1, 7):
            with self.subTest(part):
                self.cli("revert", "--site", self.site)
                process = subprocess.Popen(
                    [real.CLI, *self.words], env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                try:
                    process.wait(whole * part / 7)
                except subprocess.TimeoutExpired:
                    os.kill(process.pid, signal.SIGKILL)
                    process.wait()
                self.cli(*self.words)
                self.assertTrue(self.shown(self.site)["fresh"])


class Busy(Fixture):
    def test_others_at_work_are_named_and_left_alone(self):
        self.cli(*self.words)
        (path,) = self.state.glob("*/verdict.json")
        before = path.read_bytes()
        text = self.cli("verify", "--site", self.site, "--json", expect=9, FAKE_PROCESS="4711")
        told = json.loads(text)
        (check,) = [check for check in told["checks"] if check["status"] == "INCONCLUSIVE"]
        self.assertEqual(check["id"], "grant.processes")
        self.assertIn("pid 4711 on GPU 0", check["actual"])
        self.assertEqual({check["level"] for check in told["checks"]}, {1})
        self.assertIsNone(told["verdict"])
        self.assertEqual(path.read_bytes(), before)
        self.assertEqual(len(GPUS), len(told["gpus"]))


if __name__ == "__main__":
    unittest.main()
