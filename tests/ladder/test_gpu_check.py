"""tests/gpu/verify.py, which shows on machines with GPUs what verify and enable do there, over the stand-in: its cases
hold where they should, and fail where they should."""

import os
import pathlib
import shutil
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "verdict"))

from common import Case, real  # noqa: E402

CHECK = HERE.parent / "gpu" / "verify.py"


class Check(Case):
    def setUp(self):
        super().setUp()
        self.site = self.install("site")
        shutil.copy(os.environ["STANDIN"], self.site / "sgl_pcie" / "sgl-pcie-gpu")
        self.environment |= {"STANDIN_GPUS": "2", "PERF_STANDIN": os.environ["PERF_STANDIN"], "PATH": os.environ["PATH"]}
        self.environment["LD_LIBRARY_PATH"] += ":" + os.environ["FAKE_NCCL_FOLDER"]
        del self.environment["SGL_PCIE_STATE"]

    def check(self, *groups, **environment):
        keep = [word for name in ("LD_LIBRARY_PATH", "FAKE_GPUS") for word in ("--pass", name)]
        done = subprocess.run(
            [sys.executable, "-B", CHECK, "--cli", real.CLI, "--site", self.site, "--inject", os.environ["STANDIN"], "--minutes", "0.01", "--faults", "nan,hang", *keep, *groups],
            env={**self.environment, **environment}, capture_output=True, text=True, timeout=550, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    def test_all_that_needs_no_gpu_holds(self):
        code, text = self.check("ladder", "few", "faults", "stale", "flag", "users", "traces", "report")
        self.assertNotIn("FAILED", text)
        self.assertEqual(code, 0, text)
        self.assertIn(" 0 failed", text.splitlines()[-1])
        self.assertRegex(text, "ok .* nan:0-1 is caught, exit 7: load-all.0-1, load-flag.0-1, load.0-1\n")

    def test_what_does_not_hold_is_said(self):
        code, text = self.check("ladder", FAKE_SMOKE="host:7")
        self.assertEqual((code, text.count("FAILED")), (1, 2), text)
        self.assertIn("0 of 2 cases hold, 2 failed, 0 skipped", text)


if __name__ == "__main__":
    unittest.main()
