"""setup from a released wheel to enabled, in one command; killed at any point and run again. The compiler is the one of
tests/build, the program for GPUs the stand-in of this folder."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "verdict"), str(HERE.parent / "build")]

import fake  # noqa: E402
from common import GPUS, Case, real, tree  # noqa: E402

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
            "PERF_STANDIN": os.environ["PERF_STANDIN"],
        }
        self.environment["LD_LIBRARY_PATH"] += ":" + os.environ["FAKE_NCCL_FOLDER"]
        self.words = ["setup", "--site", self.site, "--arch", "sm_90", "--json"]


FOUR = [*GPUS, "GPU-33333333-0000-0000-0000-000000000000", "GPU-44444444-0000-0000-0000-000000000000"]
STEPS = ["recover", "doctor", "apply", "build", "verify", "bench", "enable"]


class Setup(Fixture):
    def setup_(self, expect=0, **environment):
        return json.loads(self.cli(*self.words, expect=expect, **environment))

    def test_from_a_wheel_to_enabled(self):
        told = self.setup_()
        self.assertEqual([step["command"] for step in told["steps"]], STEPS)
        self.assertIn("enabled for", told["message"])
        self.assertFalse((self.site / ".sgl-pcie/setup.json").exists())
        self.assertTrue(self.shown(self.site)["fresh"])
        self.assertIn("enabled: nothing to do", self.cli("status", "--site", self.site))

    def test_again_it_does_nothing_twice(self):
        self.setup_()
        before = {path: path.read_bytes() for path in self.state.rglob("*") if path.is_file()}
        told = self.setup_()
        self.assertEqual([step["command"] for step in told["steps"]], STEPS)
        self.assertIn("already enabled", told["message"])
        self.assertIn("still holds", told["steps"][4]["message"])
        self.assertIn("still holds", told["steps"][5]["message"])
        self.assertEqual({path: path.read_bytes() for path in self.state.rglob("*") if path.is_file()}, before)

    def test_the_text_has_a_line_a_step(self):
        words = [word for word in self.words if word != "--json"]
        told = self.cli(*words).splitlines()
        self.assertEqual([line.split()[0] for line in told[:7]], STEPS)
        self.assertIn("enabled for", told[7])

    def test_a_backend_that_failed_does_not_block_another(self):
        """Not the first time, and not the second, when the verdict is there."""
        told = self.setup_(SGL_PCIE_INJECT="nan:0-1")
        self.assertEqual([step["exit_code"] for step in told["steps"]], [0, 0, 0, 0, 7, 0, 0])
        self.assertIn("enabled for", told["message"])
        verdict = json.loads(next(self.state.glob("*/verdict.json")).read_text())
        results = {result["backend"]: result["result"] for result in verdict["results"]}
        self.assertEqual(results, {"host": "PASS", "push": "PASS", "pull": "FAIL"})
        told = self.setup_()
        self.assertIn("already enabled", told["message"])
        self.assertIn("still holds", told["steps"][4]["message"])

    def test_a_profile_of_what_passes_no_more_is_measured_again(self):
        self.cli("apply", "--site", self.site)
        self.cli("build", "--site", self.site, "--arch", "sm_90")
        self.cli("verify", "--site", self.site, expect=7, FAKE_SMOKE="host:7")
        self.cli("bench", "--site", self.site)
        self.cli("verify", "--site", self.site, expect=7, SGL_PCIE_INJECT="lie:0-1")
        self.assertIn("start values would choose", self.cli("enable", "--site", self.site, expect=1))
        told = self.setup_()
        self.assertIn("still holds", told["steps"][4]["message"])
        self.assertIn("ours is faster", told["steps"][5]["message"])
        self.assertIn("still holds", self.setup_()["steps"][5]["message"])

    def test_without_two_gpus_nothing_is_written(self):
        before = tree(self.site)
        for gpus, words, expect, says in (
            ("", [], 5, "GPU"),
            (GPUS[0], [], 5, "an all-reduce needs two"),
            (",".join(GPUS), ["--gpus", "0,9"], 2, "9"),
        ):
            with self.subTest(gpus=gpus, words=words):
                told = json.loads(self.cli(*self.words, *words, expect=expect, FAKE_GPUS=gpus))
                self.assertEqual([step["command"] for step in told["steps"]], ["recover", "doctor"])
                self.assertIn(says, told["message"])
                self.assertEqual(tree(self.site), before)

    def test_a_failed_proof_is_undone(self):
        told = self.setup_(7, SGL_PCIE_INJECT="nan:0-1", FAKE_DEATH="push:8", FAKE_SMOKE="host:8")
        self.assertEqual(told["undone"], True)
        self.assertEqual([step["exit_code"] for step in told["steps"]][-2:], [7, 0])
        self.assertFalse((self.site / "sgl_pcie").exists())
        self.assertIn("stock: not patched", self.cli("status", "--site", self.site))

    def test_wrong_data_while_measuring_is_undone(self):
        told = self.setup_(7, FAKE_BENCH="wrong:host-one-shot")
        self.assertEqual([step["command"] for step in told["steps"]], STEPS[:-1] + ["revert"])
        self.assertIn("bench: ", told["message"])
        self.assertIn("stock: not patched", self.cli("status", "--site", self.site))

    def test_where_stock_is_faster_it_says_so_and_is_stock_again(self):
        before = tree(self.site)
        told = self.setup_(1, FAKE_BENCH="stock")
        self.assertEqual([step["command"] for step in told["steps"]], [*STEPS, "revert"])
        self.assertEqual([step["exit_code"] for step in told["steps"]], [0] * 6 + [1, 0])
        self.assertIn("nothing is faster here than what SGLang does by itself; the install is stock again", told["message"])
        self.assertIsNone(told["next"])
        self.assertEqual(tree(self.site), before)

    def test_killed_anywhere_and_run_again(self):
        start = time.monotonic()
        self.setup_()
        whole = time.monotonic() - start
        for part in range(1, 9):
            with self.subTest(part):
                self.cli("revert", "--site", self.site)
                shutil.rmtree(self.state)
                process = subprocess.Popen(
                    [real.CLI, *self.words], env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                try:
                    process.wait(whole * part / 9)
                except subprocess.TimeoutExpired:
                    os.kill(process.pid, signal.SIGKILL)
                    process.wait()
                self.setup_()
                self.assertTrue(self.shown(self.site)["fresh"])
                self.assertIn("enabled: nothing to do", self.cli("status", "--site", self.site))


class Foreign(Fixture):
    @unittest.skipIf(os.geteuid() != 0, "needs root")
    def test_what_another_user_enabled_is_not_done_twice(self):
        """Nothing can be written there, and nothing is to be."""
        self.cli(*self.words)
        before = tree(self.site)
        self.environment["TMPDIR"] = "/tmp"
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", real.CLI]
        done = self.run_in([*nobody, "build", "--site", self.site, "--arch", "sm_90"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("up to date", done.stdout)
        done = self.run_in([*nobody, *self.words])
        told = json.loads(done.stdout)
        said = "already enabled for this user, from SGLang's next start on, if that has SGL_PCIE_STATE=%s" % self.state
        self.assertEqual((done.returncode, told["message"]), (0, said))
        self.assertEqual(tree(self.site), before)
        done = self.run_in([*nobody, "build", "--site", self.site, "--arch", "sm_120"])
        self.assertEqual(done.returncode, 5)
        self.assertIn("cannot write in", done.stderr)


class Some(Fixture):
    """What was proved and measured of some of the GPUs is not done for all."""

    def setUp(self):
        super().setUp()
        self.environment["FAKE_GPUS"] = ",".join(FOUR)

    def run_(self, *words, gpus, command=None):
        return json.loads(self.cli(*(command or self.words), *words, STANDIN_GPUS=str(gpus)))

    def kept(self, told):
        """Which of verify and bench were not run again."""
        return {step["command"] for step in told["steps"] if "still holds" in step["message"]}

    def worlds(self):
        (path,) = self.state.glob("*/profile.json")
        return {tuple(FOUR.index(gpu) for gpu in table["gpus"]) for table in json.loads(path.read_text())["tables"]}

    def test_after_two_of_four_all_four_are_proved_and_measured(self):
        self.run_("--gpus", "0,1", gpus=2)
        self.assertEqual(self.worlds(), {(0, 1)})
        self.assertEqual(self.kept(self.run_(gpus=4)), set())
        self.assertEqual(self.worlds(), {(0, 1), (0, 1, 2, 3)})
        self.assertEqual(self.kept(self.run_(gpus=4)), {"verify", "bench"})
        self.assertEqual(self.kept(json.loads(self.cli(*self.words, STANDIN_GPUS="2", CUDA_VISIBLE_DEVICES="0,1"))),
                         {"verify", "bench"})  # fmt: skip

    def test_all_proved_and_two_measured(self):
        self.run_(gpus=4)
        (path,) = self.state.glob("*/profile.json")
        path.unlink()
        self.run_("--json", "--gpus", "0,1", gpus=2, command=["bench", "--site", self.site])
        self.assertEqual(self.worlds(), {(0, 1)})
        self.assertEqual(self.kept(self.run_(gpus=4)), {"verify"})
        self.assertEqual(self.worlds(), {(0, 1), (0, 1, 2, 3)})

    def test_a_pair_that_is_not_the_one_that_would_be_measured(self):
        self.run_("--gpus", "2,3", gpus=2)
        self.assertEqual(self.worlds(), {(2, 3)})
        self.assertEqual(self.kept(self.run_(gpus=4)), set())
        self.assertEqual(self.worlds(), {(2, 3), (0, 1), (0, 1, 2, 3)})
        self.assertEqual(self.kept(self.run_(gpus=4)), {"verify", "bench"})


class Check(Fixture):
    def test_the_script_for_machines_with_gpus(self):
        """scripts/setup-check.sh, which kills setup in every stage, as it ran on two H200."""
        script, work = HERE.parents[1] / "scripts" / "setup-check.sh", self.scratch / "work"
        environment = {**self.environment, "SETUP_OPTIONS": "--arch sm_90"}
        command = [script, real.CLI, self.site, work]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn("WRONG", done.stdout)
        self.assertEqual(done.stdout.count("ok    killed in"), 6)
        self.assertIn("ok    the same choices as without a kill", done.stdout)


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
