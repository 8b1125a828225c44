"""The ladder above level 1: every fault is caught by the right check, with the right exit code, and nothing is left."""

import json
import os
import pathlib
import shutil
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "verdict"))

from common import GPUS, Case, profile, real, schema  # noqa: E402

STANDIN = os.environ["STANDIN"]
NCCL = os.environ["FAKE_NCCL_FOLDER"]
FOUR = [*GPUS, "GPU-33333333-0000-0000-0000-000000000000", "GPU-44444444-0000-0000-0000-000000000000"]


class Ladder(Case):
    def setUp(self):
        super().setUp()
        self.site = self.install("site")
        shutil.copy(STANDIN, self.site / "sgl_pcie" / "sgl-pcie-gpu")
        self.environment["FAKE_GPUS"] = ",".join(GPUS)
        self.environment["STANDIN_GPUS"] = "2"
        self.environment["LD_LIBRARY_PATH"] += ":" + NCCL

    def verify(self, *words, expect, **environment):
        before, shared = self.processes(), self.shared()
        start = time.monotonic()
        text = self.cli("verify", "--site", self.site, "--json", *words, expect=expect, **environment)
        self.took = time.monotonic() - start
        end = time.monotonic() + 5  # who dies with his parent dies a moment later
        while self.processes() - before and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(self.processes() - before, set())
        self.assertEqual(self.shared() - shared, set())
        told = json.loads(text)
        self.checks = {check["id"]: check for check in told["checks"] or ()}
        self.results = {(r["backend"], r["world"]): r for r in (told["verdict"] or {"results": []})["results"]}
        return told

    def shared(self):
        """Named shared memory; semaphores are those of Python tests beside this one."""
        return {name for name in os.listdir("/dev/shm") if not name.startswith("sem.")}

    def processes(self):
        """Those of the program that works on GPUs."""
        found = set()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink("/proc/%s/exe" % pid).startswith(str(self.site)):
                    found.add(pid)
            except OSError:
                pass
        return found

    def failed(self):
        return sorted(name for name, check in self.checks.items() if check["status"] in ("FAIL", "INCONCLUSIVE"))

    def outcome(self):
        return {backend: r["result"] for (backend, _), r in self.results.items()}

    def file(self):
        (path,) = self.state.glob("*/verdict.json")
        told = json.loads(path.read_text())
        schema.validator("verdict.schema.json").validate(told)
        return told


class Beside(Ladder):
    """Somebody who comes in the middle."""

    def with_visitor(self, expect, **environment):
        program, visitor = self.site / "sgl_pcie/sgl-pcie-gpu", self.scratch / "visitor"
        program.write_text('#!/bin/sh\n[ $1 != smoke ] || echo 4711 >%s\nexec "%s" "$@"\n' % (visitor, STANDIN))
        return self.verify(expect=expect, FAKE_PROCESS=str(visitor), **environment)

    def test_what_passed_beside_somebody_else_is_no_proof(self):
        self.verify(expect=0)
        before = self.file()
        told = self.with_visitor(9)
        self.assertEqual(self.failed(), ["grant.processes"])
        self.assertIn("pid 4711 on GPU 0", self.checks["grant.processes"]["actual"])
        self.assertIn("stop them", told["next"])
        self.assertEqual((told["verdict"], self.file()), (None, before))

    def test_a_driver_that_answers_no_more_is_no_proof(self):
        told = self.with_visitor(5, FAKE_CRASH=str(self.scratch / "visitor"))
        self.assertIn("no GPU: the process that asked died", told["message"])
        self.assertEqual(list(self.state.glob("*/verdict.json")), [])

    def test_what_failed_counts(self):
        told = self.with_visitor(7, SGL_PCIE_INJECT="nan:0-1")
        self.assertEqual(self.checks["grant.processes"]["status"], "PASS")
        self.assertIsNotNone(told["verdict"])


class Sound(Ladder):
    def test_all_right(self):
        told = self.verify(expect=0)
        self.assertEqual(self.outcome(), {"push": "PASS", "pull": "PASS", "host": "PASS"})
        self.assertEqual([self.checks["nccl." + arm]["status"] for arm in ("default", "host")], ["PASS", "PASS"])
        self.assertEqual(told["verdict"]["path"], str(next(self.state.glob("*/verdict.json"))))
        self.assertEqual(self.file()["level"], 3)
        self.assertEqual(self.file()["bound"], self.bound(self.site))
        self.assertIn("sgl-pcie bench", told["next"])
        self.write(self.site, "profile.json", profile(self.bound(self.site)))
        self.assertIn("sgl-pcie enable", self.verify(expect=0)["next"])
        self.assertEqual(self.shown(self.site)["summary"], "PASS of level 3: push 2; pull 2; host 2")

    def test_each_check_has_its_time(self):
        """One reading for what one program does, not a clock that goes on from check to check."""
        self.verify("--level", "2", expect=0)
        shared = {c["duration_ms"] for c in self.checks.values() if c["level"] == 2 and not c["id"].startswith("nccl.")}
        self.assertEqual(len(shared), 1)
        own = {c["duration_ms"] for c in self.checks.values() if c["level"] == 1}
        self.assertGreater(len(own), 2)
        self.assertLess(max(own), min(shared))

    def test_what_the_program_says_is_passed_on_as_the_schema_has_it(self):
        program = self.site / "sgl_pcie/sgl-pcie-gpu"
        for junk in ("[1]", '{"a": 2}', "true"):
            words = 's/"actual":[^,]*,/"actual":%s,/; s/"expected":[^,]*,/"expected":%s,/' % (junk, junk)
            program.write_text('#!/bin/sh\n"%s" "$@" | sed \'%s\'\n' % (STANDIN, words))
            self.verify("--level", "2", expect=0)
            self.assertIsNone(self.checks["store.0-1"]["actual"], junk)
            self.assertEqual(self.checks["store.0-1"]["status"], "PASS")

    def test_a_program_that_leaves_checks_out_proves_nothing(self):
        """One of another release, say: that nothing failed is no success then, and leads not to enable."""
        program = self.site / "sgl_pcie/sgl-pcie-gpu"
        program.write_text('#!/bin/sh\n"%s" "$@" | sed "/control/d"\n' % STANDIN)
        told = self.verify(expect=9)
        self.assertEqual(self.outcome(), {"push": "INCONCLUSIVE", "pull": "INCONCLUSIVE", "host": "INCONCLUSIVE"})
        self.assertEqual(told["result"], "inconclusive")
        self.assertEqual(told["message"], "no backend was proved: push: control.0: not run")
        self.assertEqual(told["next"], "sgl-pcie build --site %s" % self.site)

    def test_no_peer_access_leaves_host(self):
        self.verify(expect=0, FAKE_NO_P2P="0-1")
        self.assertEqual(self.checks["store.0-1"]["status"], "SKIP")
        self.assertEqual(self.outcome(), {"push": "INCONCLUSIVE", "pull": "INCONCLUSIVE", "host": "PASS"})

    def test_a_low_level_that_finds_nothing_keeps_the_verdict(self):
        self.verify(expect=0)
        before = self.file()
        self.verify("--level", "2", expect=0)
        self.verify("--level", "1", expect=0)
        self.assertEqual(self.file(), before)
        self.verify("--level", "2", expect=7, SGL_PCIE_INJECT="nan:0-1")
        self.assertEqual(self.file()["level"], 3)  # push and host stay proved
        self.assertEqual(self.outcome(), {"push": "PASS", "pull": "INCONCLUSIVE", "host": "PASS"})
        self.assertIn("a later run: transfers of pull from %s to %s" % (GPUS[0], GPUS[1]), self.results["pull", 2]["reason"])

    def test_a_time_limit_of_ones_own_finds_nothing(self):
        """Not that NCCL errs, nor that a machine is to be mended, and no proof is taken away by it."""
        self.verify(expect=0)
        before = self.file()
        self.verify("--level", "2", "--timeout", "5", expect=0, FAKE_NCCL="host:hang")
        self.assertEqual(self.checks["nccl.host"]["status"], "SKIP")
        self.assertIn("the 5 s that --timeout gives it", self.checks["nccl.host"]["actual"])
        self.assertEqual(self.file(), before)
        told = self.verify("--level", "2", "--timeout", "2", expect=8, SGL_PCIE_INJECT="hang:0-1")
        self.assertEqual(self.failed(), ["transfers.program"])
        self.assertEqual(told["next"], "again with more time: --timeout 200, or none")
        self.assertIsNone(told["verdict"])
        self.assertEqual(self.file(), before)

    def test_level_4(self):
        self.verify("--level", "4", "--minutes", "0.01", expect=0)
        self.assertEqual(self.checks["soak.push.0-1"]["status"], "PASS")
        self.assertEqual(self.file()["level"], 4)

    def test_a_program_that_does_not_know_what_it_is_asked_finds_nothing(self):
        program = self.site / "sgl_pcie/sgl-pcie-gpu"
        program.write_text('#!/bin/sh\ncase " $* " in *" --soak-for "*) exit 2 ;; esac\nexec "%s" "$@"\n' % STANDIN)
        self.verify("--level", "4", "--minutes", "0.01", expect=9)
        self.assertEqual(self.checks["soak.host.0-1"]["status"], "INCONCLUSIVE")


class Faults(Ladder):
    """The real transfer test, told to break."""

    def fault(self, name, expect, checks, outcome, within=60):
        self.verify(expect=expect, SGL_PCIE_INJECT=name + ":0-1")
        self.assertEqual(self.failed(), sorted(checks))
        self.assertEqual(self.outcome(), outcome)
        self.assertLess(self.took, within)

    def test_one_wrong_word(self):
        self.fault("corrupt", 7, ["store.0-1", "store-all.0-1"], {"push": "FAIL", "pull": "PASS", "host": "PASS"})

    def test_stores_that_are_lost(self):
        checks = ["store.0-1", "store-flag.0-1", "store-all.0-1"]
        self.fault("drop", 7, checks, {"push": "FAIL", "pull": "PASS", "host": "PASS"})

    def test_nan_from_loads_only(self):
        checks = ["load.0-1", "load-flag.0-1", "load-all.0-1"]
        self.fault("nan", 7, checks, {"push": "PASS", "pull": "FAIL", "host": "PASS"})
        self.assertIn("7fc00000", self.checks["load.0-1"]["actual"])

    def test_peer_access_that_is_a_lie(self):
        self.verify(expect=7, SGL_PCIE_INJECT="lie:0-1")
        self.assertEqual(self.outcome(), {"push": "FAIL", "pull": "FAIL", "host": "PASS"})
        self.assertEqual(self.checks["store-flag.0-1"]["status"], "FAIL")
        self.assertEqual(self.checks["copy.1-0"]["status"], "PASS")

    def test_a_kernel_that_never_ends(self):
        self.fault("hang", 8, ["store.0-1"], {"push": "FAIL", "pull": "PASS", "host": "PASS"})
        self.assertIn("did not end", self.checks["store.0-1"]["actual"])

    def test_a_rank_that_comes_late(self):
        self.fault("delay", 8, ["store.0-1"], {"push": "FAIL", "pull": "PASS", "host": "PASS"})
        self.assertIn("rank 0", self.checks["store.0-1"]["actual"])

    def test_stores_that_are_slow_are_a_warning(self):
        four = {"FAKE_GPUS": ",".join(FOUR), "STANDIN_GPUS": "4"}
        self.verify("--level", "2", expect=0, SGL_PCIE_INJECT="slow:0-1", **four)
        self.assertEqual(self.checks["store-rate.0-1"]["status"], "WARN")
        self.assertIn("half of another's rate", self.checks["store-rate.0-1"]["remedy"])
        self.verify("--level", "2", expect=0, SGL_PCIE_INJECT="collapse:2-1", **four)
        self.assertEqual(self.checks["collapse.2-1"]["status"], "WARN")
        self.assertIn("pull or host may be faster", self.checks["collapse.2-1"]["remedy"])
        self.assertEqual(self.checks["collapse.0-1"]["unit"], "GB/s")
        eight = ["GPU-%d%d%d%d%d%d%d%d-0000-0000-0000-000000000000" % ((i,) * 8) for i in range(1, 9)]
        self.verify("--level", "2", expect=0, SGL_PCIE_INJECT="collapse:2-1", FAKE_GPUS=",".join(eight), STANDIN_GPUS="8")
        self.assertEqual(self.checks["collapse.2-1"]["status"], "WARN")

    def test_host_memory_has_figures_without_any_peer(self):
        self.verify("--level", "2", expect=0, FAKE_NO_P2P="0-1")
        for name, unit in (("host-latency.0-1", "us"), ("host-store-rate.1", "GB/s"), ("host-load-rate.0", "GB/s")):
            self.assertEqual(self.checks[name]["unit"], unit)
            self.assertGreater(self.checks[name]["actual"], 0)
        self.assertNotIn("collapse.0-1", self.checks, "of two ranks none can hinder another")

    def test_a_rank_that_dies(self):
        self.fault("die", 1, ["store.0-1"], {"push": "FAIL", "pull": "PASS", "host": "PASS"})

    def test_a_mapping_that_is_refused(self):
        self.verify(expect=1, FAKE_NO_MAPPING="1")
        self.assertEqual(self.outcome(), {"push": "FAIL", "pull": "FAIL", "host": "PASS"})
        self.assertIn("peer access is granted", self.checks["store.0-1"]["actual"])

    def test_a_gpu_that_errs_by_itself_is_inconclusive(self):
        self.verify(expect=9, SGL_PCIE_INJECT="sick:0-1")
        self.assertEqual(self.checks["control.0"]["status"], "INCONCLUSIVE")
        self.assertEqual(self.outcome(), {"push": "INCONCLUSIVE", "pull": "INCONCLUSIVE", "host": "INCONCLUSIVE"})
        self.assertIn("control.0: inconclusive", self.results["host", 2]["reason"])
        self.assertIn("Xid", self.checks["control.0"]["remedy"])

    def test_the_program_that_does_not_end(self):
        self.verify("--timeout", "2", expect=8, SGL_PCIE_INJECT="hang:0-1")
        self.assertEqual(self.checks["transfers.program"]["status"], "FAIL")
        self.assertLess(self.took, 20)

    def test_a_bad_end_that_no_check_explains(self):
        """Its last lines were lost, or CUDA refused half-way: that all which it said passed is no proof."""
        program = self.site / "sgl_pcie/sgl-pcie-gpu"
        for code, expect, status in ((7, 7, "FAIL"), (5, 9, "INCONCLUSIVE"), (77, 1, "FAIL")):
            with self.subTest(code):
                program.write_text('#!/bin/sh\n"%s" "$@" || exit\n[ "$1" != transfers ] || exit %d\n' % (STANDIN, code))
                self.verify(expect=expect)
                self.assertEqual(self.failed(), ["transfers.end"])
                self.assertIn("sgl-pcie report --site %s" % self.site, self.checks["transfers.end"]["remedy"])
                self.assertEqual(self.checks["transfers.end"]["status"], status)
                self.assertEqual(set(self.outcome().values()), {"INCONCLUSIVE"})
                self.assertIn("transfers.end: ", self.results["host", 2]["reason"])


class Control(Ladder):
    """NCCL, which knows nothing of this program, as a witness."""

    def hurry(self):
        """NCCL gets 5 s instead of all that verify would give it."""
        program = self.site / "sgl_pcie/sgl-pcie-gpu"
        program.write_text('#!/bin/sh\n[ "$1" != nccl ] || set -- nccl --limit 5 --json\nexec "%s" "$@"\n' % STANDIN)

    def arms(self):
        return [self.checks["nccl." + arm]["status"] for arm in ("default", "host")]

    def test_wrong_without_peers_too_is_the_machine(self):
        self.hurry()
        for how in ("wrong", "hang"):
            with self.subTest(how):
                self.verify(expect=9, FAKE_NCCL="host:" + how, SGL_PCIE_INJECT="nan:0-1")
                self.assertEqual(self.arms(), ["PASS", "INCONCLUSIVE"])
                self.assertEqual(self.checks["load.0-1"]["status"], "INCONCLUSIVE")
                self.assertEqual(set(self.outcome().values()), {"INCONCLUSIVE"})
                for result in self.results.values():
                    self.assertIn("nccl.host: inconclusive: ", result["reason"])
                self.assertIn("element 17" if how == "wrong" else "time limit", self.checks["nccl.host"]["actual"])
        self.assertEqual(self.shown(self.site)["summary"], "INCONCLUSIVE of level 3")

    def test_a_proof_does_not_outlive_such_a_doubt(self):
        self.verify(expect=0)
        self.verify("--level", "2", "--gpus", "0,1", expect=9, FAKE_NCCL="host:wrong")
        self.assertEqual(self.file()["results"], [])

    def test_wrong_with_peers_only_is_peer_access(self):
        self.verify(expect=7, FAKE_NCCL="default:wrong", SGL_PCIE_INJECT="nan:0-1")
        self.assertEqual(self.arms(), ["FAIL", "PASS"])
        self.assertEqual(self.outcome(), {"push": "PASS", "pull": "FAIL", "host": "PASS"})
        self.assertIn("NCCL_P2P_DISABLE=1", self.checks["nccl.default"]["remedy"])
        self.hurry()
        self.verify(expect=8, FAKE_NCCL="default:hang")
        self.assertEqual(self.outcome(), {"push": "PASS", "pull": "PASS", "host": "PASS"})

    def test_none_or_one_that_cannot_start_says_nothing(self):
        self.verify(expect=0, FAKE_NCCL="host:error")
        self.assertEqual(self.arms(), ["PASS", "SKIP"])
        self.assertIn("unhandled system error", self.checks["nccl.host"]["actual"])
        broken = self.scratch / "nccl"
        broken.mkdir()
        (broken / "libnccl.so.2").write_text("none")
        self.environment["LD_LIBRARY_PATH"] = "%s:%s" % (broken, os.environ["FAKE_NVML"])
        self.verify(expect=0)
        self.assertEqual(self.arms(), ["SKIP", "SKIP"])
        self.assertIn("libnccl.so.2", self.checks["nccl.host"]["actual"])
        self.verify(expect=7, SGL_PCIE_INJECT="nan:0-1")
        self.assertEqual(self.outcome(), {"push": "PASS", "pull": "FAIL", "host": "PASS"})


class Some(Ladder):
    """Runs on some of four GPUs."""

    def setUp(self):
        super().setUp()
        self.environment["FAKE_GPUS"] = ",".join(FOUR)

    def on(self, gpus, expect=0, **environment):
        self.verify("--gpus", gpus, expect=expect, STANDIN_GPUS=str(len(gpus.split(","))), **environment)

    def found(self):
        return {(r["backend"], tuple(FOUR.index(gpu) for gpu in r["gpus"])): r["result"] for r in self.file()["results"]}

    def covered(self, backend, gpus):
        code = "from sgl_pcie import verdict; v, why = verdict.load(); print(v.covers(%r, %r))"
        return self.python(self.site, code % (backend, [FOUR[i] for i in gpus])) == "True"

    def test_a_run_on_some_keeps_what_was_proved_on_others(self):
        self.on("0,1,2,3")
        self.assertEqual(self.found()["push", (0, 1, 2, 3)], "PASS")
        self.on("2,3")
        self.assertEqual(set(self.found().values()), {"PASS"})
        self.assertEqual(len(self.found()), 12)
        for gpus in ((0, 1), (2, 3), (1, 3), (0, 1, 2, 3)):
            self.assertTrue(self.covered("pull", gpus), gpus)
        self.assertIn("beside 9 of earlier runs", self.cli("verify", "--site", self.site, "--gpus", "2,3", STANDIN_GPUS="2"))

    def test_what_breaks_on_some_breaks_the_sets_that_hold_them(self):
        self.on("0,1,2,3")
        self.on("2,3", expect=7, SGL_PCIE_INJECT="nan:0-1")  # the program's numbers
        self.assertEqual(self.found()["pull", (0, 1)], "PASS")
        self.assertEqual(self.found()["pull", (0, 1, 2, 3)], "FAIL")
        self.assertEqual(self.found()["push", (0, 1, 2, 3)], "PASS")
        self.assertFalse(self.covered("pull", (2, 3)))
        self.assertFalse(self.covered("pull", (0, 2, 3)))
        self.assertTrue(self.covered("pull", (0, 2)))
        self.assertTrue(self.covered("host", (2, 3)))

    def test_a_changed_library_starts_anew(self):
        self.on("0,1")
        (self.site / "sgl_pcie" / "libpar.so").write_text("rebuilt")
        self.on("2,3")
        self.assertEqual({gpus for _, gpus in self.found()}, {(2, 3)})


class Kernels(Ladder):
    """The stand-in's smoke."""

    def fault(self, said, expect, outcome, *words):
        self.verify(*words, expect=expect, FAKE_SMOKE=said)
        self.assertEqual(self.outcome(), outcome)

    def test_each_end(self):
        for end, expect, result in (("7", 7, "FAIL"), ("8", 8, "FAIL"), ("1", 1, "FAIL"), ("die", 1, "FAIL"), ("9", 9, "INCONCLUSIVE"), ("5", 9, "INCONCLUSIVE")):
            with self.subTest(end):
                self.fault("pull:" + end, expect, {"push": "PASS", "pull": result, "host": "PASS"})

    def test_a_death_that_nobody_notices(self):
        self.verify(expect=8, FAKE_DEATH="push:8")
        self.assertEqual(self.outcome(), {"push": "FAIL", "pull": "PASS", "host": "PASS"})
        self.assertEqual(self.failed(), ["death.push.0-1"])

    def test_a_wedge_with_a_child_that_holds_the_pipes(self):
        self.fault("host:hang", 8, {"push": "PASS", "pull": "PASS", "host": "FAIL"}, "--timeout", "10")
        self.assertIn("killed", self.checks["kernels.host.0-1"]["actual"])

    def test_wrong_data_comes_before_a_hang(self):
        self.verify(expect=7, FAKE_SMOKE="host:8", SGL_PCIE_INJECT="nan:0-1")


class Unwritten(Ladder):
    """What was found decides, even where the disk is full; and no earlier verdict stays that says more than that."""

    INSIDE = """set -e
        mount -t tmpfs -o size=256k none "$STATE"; cp -r "$KEPT/." "$STATE"
        dd if=/dev/zero of="$STATE/fill" bs=4k 2>/dev/null || true
        mount -o "remount,$MODE" "$STATE"
        "$@" >"$OUT/told" 2>"$OUT/said" || echo $? >"$OUT/code"
        "$SGL_PCIE" status --json --site "$4" >"$OUT/status" """

    def setUp(self):
        super().setUp()
        self.verify(expect=0)
        self.kept, self.out = self.scratch / "kept", self.scratch / "out"
        self.state.rename(self.kept)
        self.state.mkdir()
        self.out.mkdir()
        self.environment |= {"STATE": str(self.state), "KEPT": str(self.kept), "OUT": str(self.out), "MODE": "rw"}
        self.environment["SGL_PCIE"] = os.environ["SGL_PCIE"]

    def full(self, *words, expect, **environment):
        """verify's answer and what status says after it, on a disk without space."""
        space = ["unshare", "--mount", "sh", "-c", self.INSIDE, "sh"]
        if self.run_in(["unshare", "--mount", "mount", "-t", "tmpfs", "none", self.state]).returncode:
            self.skipTest("no mount namespace can be had")
        verify = [os.environ["SGL_PCIE"], "verify", "--site", self.site, "--json", *words]
        done = self.run_in([*space, *verify], **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        told = json.loads((self.out / "told").read_text())
        schema.validate(told)
        self.assertEqual(told["exit_code"], expect, told["message"])
        self.assertEqual((self.out / "code").read_text(), "%d\n" % expect)
        self.assertIsNone(told["verdict"])
        return told, json.loads((self.out / "status").read_text())["verdict"]

    def test_wrong_data_is_told_and_the_proof_withdrawn(self):
        for words in ([], ["--level", "2"]):
            with self.subTest(words):
                told, verdict = self.full(*words, expect=7, SGL_PCIE_INJECT="nan:0-1")
                self.assertEqual(told["result"], "fail")
                self.assertIn("load.0-1: failed: ", told["message"])
                self.assertIn("No space left on device; the earlier verdict was withdrawn", told["message"])
                self.assertIn("free space there", told["next"])
                self.assertFalse(verdict["present"])

    def test_a_good_run_withdraws_nothing(self):
        told, verdict = self.full(expect=5)
        self.assertIn("No space left on device", told["message"])
        self.assertNotIn("withdrawn", told["message"])
        self.assertIn("free space there", told["next"])
        self.assertTrue(verdict["fresh"])

    def test_what_cannot_be_withdrawn_is_named(self):
        told, verdict = self.full("--level", "2", expect=7, MODE="ro", SGL_PCIE_INJECT="nan:0-1")
        self.assertIn("load.0-1: failed: ", told["message"])
        self.assertIn("the earlier verdict still holds: cannot remove ", told["message"])
        self.assertRegex(told["next"], "remove '.*/verdict.json': SGLang goes by it")
        self.assertTrue(verdict["fresh"])

    def test_a_folder_in_its_place_is_noticed_before_anything_is_run(self):
        (folder,) = (path.relative_to(self.kept).parent for path in self.kept.glob("*/verdict.json"))
        (self.state / folder / "verdict.json").mkdir(parents=True)
        told = json.loads(self.cli("verify", "--site", self.site, "--json", expect=5))
        self.assertIsNone(told["checks"])
        self.assertIn("verdict.json': Is a directory", told["message"])
        self.assertIn("move it away", told["next"])


class Cannot(Ladder):
    def test_what_is_missing_is_named(self):
        os.unlink(self.site / "sgl_pcie" / "sgl-pcie-gpu")
        self.assertIn("next: sgl-pcie build --site %s\n" % self.site, self.verify_error(5))
        stock = self.scratch / "stock"
        real.site("0.5.23", stock)
        for level in ("2", "3"):
            told = self.cli("verify", "--site", stock, "--level", level, expect=5)
            self.assertIn("next: sgl-pcie apply --site %s\n" % stock, told)
        self.cli("verify", "--site", stock, "--level", "1")
        shutil.copy(STANDIN, self.site / "sgl_pcie" / "sgl-pcie-gpu")
        self.assertIn("at least", self.verify_error(5, FAKE_GPUS=GPUS[0]) + "at least")
        self.verify_error(5, FAKE_GPUS="")
        self.verify_error(2, "--level", "5")
        self.verify_error(2, "--minutes", "x")

    def test_a_library_that_changes_meanwhile_gets_no_verdict(self):
        program = self.site / "sgl_pcie" / "sgl-pcie-gpu"
        program.write_text('#!/bin/sh\nprintf x >>"%s"\nexec "%s" "$@"\n' % (program.with_name("libpar.so"), STANDIN))
        told = self.verify_error(5)
        self.assertIn("something changed while it was tested: libpar.so was", told)
        self.assertIn("next: sgl-pcie verify --site %s\n" % self.site, told)
        self.assertEqual(list(self.state.glob("*/verdict.json")), [])

    def verify_error(self, expect, *words, **environment):
        return self.cli("verify", "--site", self.site, *words, expect=expect, **environment)


if __name__ == "__main__":
    unittest.main()
