"""setup where it cannot come to its end: stock again, whatever it was interrupted in."""

import json
import os
import pathlib
import py_compile
import signal
import subprocess
import sys
import time
import unittest

from common import ROOT, Case, real, tree

sys.path.append(str(ROOT / "tests" / "build"))

import fake  # noqa: E402
import source  # noqa: E402


class Setup(Case):
    def setUp(self):
        super().setUp()
        self.site = self.scratch / "site"
        real.site("0.5.23", self.site)
        self.stock = tree(self.site)
        self.environment["SGL_PCIE_NVCC"] = "/nonexistent/nvcc"

    def setup_(self, expect, *words):
        return json.loads(self.cli("setup", "--site", self.site, "--arch", "sm_90", "--json", *words, expect=expect))

    def test_a_failure_is_undone_and_says_where(self):
        told = self.setup_(5)
        self.assertEqual([step["command"] for step in told["steps"]], ["recover", "doctor", "apply", "build", "revert"])
        self.assertEqual(told["undone"], True)
        self.assertIn("build: ", told["message"])
        self.assertIn("stock again", told["message"])
        self.assertTrue(told["next"])
        self.assertEqual(tree(self.site), self.stock)

    def test_what_to_do_next_is_for_the_install_that_is_there_now(self):
        """build's own next command, which finds nothing to build into in an install that is stock again."""
        fake.make_toolkit(self.scratch / "toolkit")
        self.environment["SGL_PCIE_NVCC"] = str(self.scratch / "toolkit/bin/nvcc")
        for patched in (False, True):
            told = json.loads(self.cli("setup", "--site", self.site, "--json", expect=5))
            self.assertEqual(told["undone"], None if patched else True)
            command = "build" if patched else "setup"
            self.assertEqual(told["next"], "sgl-pcie %s --site %s --arch sm_90" % (command, self.site))
            self.cli("apply", "--site", self.site)

    def test_what_was_patched_before_stays(self):
        self.cli("apply", "--site", self.site)
        before = tree(self.site)
        told = self.setup_(5)
        self.assertIsNone(told["undone"])
        self.assertEqual(tree(self.site), before)

    def test_a_kernel_that_was_patched_before_stays(self):
        checkout = source.make(self.scratch / "checkout")
        self.environment["SGL_PCIE_DATA"] = str(source.data(self.scratch / "data"))
        self.cli("apply", "--source", checkout, "--set", "sgl-kernel")
        before = real.snapshot(checkout)
        told = json.loads(self.cli("setup", "--source", checkout, "--arch", "sm_90", "--json", expect=5))
        self.assertEqual(told["undone"], True)
        self.assertEqual(real.snapshot(checkout), before)

    def compiling(self, waits="touch $0.seen; exec sleep 60"):
        """A setup that has come to the compiler, and waits there."""
        nvcc, seen = self.scratch / "nvcc", self.scratch / "nvcc.seen"
        nvcc.write_text("#!/bin/sh\n[ -e %s/sgl_pcie ] || exit 1\n%s\n" % (self.site, waits))
        nvcc.chmod(0o755)
        process = subprocess.Popen(
            [real.CLI, "setup", "--site", self.site, "--arch", "sm_90", "--json"],
            env={**self.environment, "SGL_PCIE_NVCC": str(nvcc)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None and not seen.exists():
            time.sleep(0.01)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertTrue(seen.exists())
        return process

    def interrupt(self):
        process = self.compiling()
        process.kill()
        process.wait()

    def test_an_interrupt_reaches_what_the_compiler_started(self):
        """Through setup, build and nvcc, each of which leads a process group of its own."""
        process = self.compiling("sleep 60 & echo $! >$0.new; mv $0.new $0.seen; wait")
        compiler = int((self.scratch / "nvcc.seen").read_text())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(10), -signal.SIGINT)
        with self.assertRaises(ProcessLookupError):
            for _ in range(100):  # until somebody has waited for it
                os.kill(compiler, 0)
                time.sleep(0.05)

    def test_what_an_interrupted_run_patched_is_taken_back(self):
        self.interrupt()
        self.assertIn("patched, not built", self.cli("status", "--site", self.site))
        told = self.setup_(5)
        self.assertEqual((told["undone"], tree(self.site)), (True, self.stock))
        self.assertIn("stock again", told["message"])

    def test_a_step_that_is_killed_is_undone(self):
        """As by the kernel where memory is short. The step's own command would find nothing to work on."""
        process = self.compiling()
        step = pathlib.Path("/proc/%d/task/%d/children" % (process.pid, process.pid)).read_text()
        os.kill(int(step), signal.SIGKILL)
        told = json.loads(process.communicate()[0])
        self.assertEqual((process.returncode, told["undone"], tree(self.site)), (5, True, self.stock))
        self.assertEqual(told["next"], "sgl-pcie setup --site %s" % self.site)

    def test_two_at_once(self):
        process = self.compiling()
        before = tree(self.site)
        told = self.setup_(5)
        self.assertEqual((told["steps"], told["undone"], tree(self.site)), ([], None, before))
        self.assertIn("another setup is at work on this install: process ", told["message"])
        self.assertIn("process %d" % process.pid, told["message"])
        self.assertIn("wait until process %d has ended" % process.pid, told["next"])

    def test_unless_somebody_applied_it_since(self):
        self.interrupt()
        self.assertIn("setup, which would not take it back", self.cli("apply", "--site", self.site, "--dry-run"))
        self.assertIn("setup, which does not take it back", self.cli("apply", "--site", self.site))
        self.assertIn("already applied: nothing to do", self.cli("apply", "--site", self.site))
        before = tree(self.site)
        self.assertIsNone(self.setup_(5)["undone"])
        self.assertEqual(tree(self.site), before)

    def spoil(self, site):
        """Bytecode that Python takes without a look at the patched file."""
        self.cli("apply", "--site", site)
        source = site / "sglang/srt/distributed/device_communicators/custom_all_reduce.py"
        (source.parent / "__pycache__").mkdir(exist_ok=True)
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        return py_compile.compile(str(source), str(source.parent / "__pycache__/custom_all_reduce.cpython-311.pyc"),
                                  invalidation_mode=mode)  # fmt: skip

    def test_doctor_looks_at_the_install_that_is_named(self):
        bytecode = self.spoil(self.site)
        told = self.setup_(1)
        self.assertEqual([step["command"] for step in told["steps"]], ["recover", "doctor"])
        self.assertEqual(told["next"], "rm '%s'" % bytecode)

    def test_doctor_looks_at_no_other_install(self):
        venv = self.scratch / "venv"
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", venv], check=True)
        (other,) = venv.glob("lib/python*/site-packages")
        real.site("0.5.23", other)
        self.spoil(other)
        self.environment["VIRTUAL_ENV"] = str(venv)
        self.assertIn("bytecode.unchecked", self.cli("doctor", expect=1))
        told = self.setup_(5)
        self.assertEqual([step["command"] for step in told["steps"]], ["recover", "doctor", "apply", "build", "revert"])

    def test_killed_anywhere_and_run_again(self):
        """A kill may leave a patched install, since nobody is there to undo; never one that cannot be worked with."""
        for delay in (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.2):
            with self.subTest(delay):
                process = subprocess.Popen(
                    [real.CLI, "setup", "--site", self.site, "--arch", "sm_90", "--json"],
                    env=self.environment,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                try:
                    process.wait(delay)
                except subprocess.TimeoutExpired:
                    os.kill(process.pid, signal.SIGKILL)
                    process.wait()
                self.setup_(5)
                self.cli("revert", "--site", self.site)
                self.assertEqual(tree(self.site), self.stock)


if __name__ == "__main__":
    unittest.main()
