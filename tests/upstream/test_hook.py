"""SGLang's own CustomAllreduce of real wheels on libupstream.so: only where that was asked for and all ranks can, and
then with all seven functions; stock in every other case. The library is a stand-in that writes down who asks what."""

import json
import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "patches")]

import real  # noqa: E402

FAKE = Path(os.environ["SP_FAKE_OVERLAY"])
FLAG, BACKEND, LIMITS = "SGLANG_FORCE_CUSTOM_AR_PCIE", "SGLANG_PCIE_AR_BACKEND", "SGLANG_PCIE_UPSTREAM_LIMITS"
UNSAFE = {FLAG: "unsafe", BACKEND: "upstream"}
# The first release of every text of the module that keeps the seven functions, and of every shape of the hook.
ERAS = ["0.4.4.post4", "0.4.9.post4", "0.5.5", "0.5.6.post1", "0.5.9", "0.5.11", "0.5.12", "0.5.13", real.NEWEST]
BEFORE = ["0.4.1.post7", "0.4.4"]  # another kernel, or none that is handed out

FOUR, TWO, NVLINK = {"world": 4}, {"world": 2}, {"world": 4, "nvlink": True}


class Trees(real.Scratch):
    def tree(self, version, overlay=True):
        tree = self.folder / version / str(overlay)
        if not tree.exists():
            real.site(version, tree)
            self.add_functions(tree, version)
            real.patch(tree, version)
            real.add_package(tree)
            if overlay:
                shutil.copy(FAKE, tree / "sgl_pcie" / "libupstream.so")
        return tree

    def add_functions(self, tree, version):
        """The module that has the seven functions, to 0.5.6; later it lies beside the class."""
        name = "sglang/srt/_custom_ops.py"
        try:
            (tree / name).write_bytes(real.pristine(version, name))
        except KeyError:
            pass

    def run_in(self, tree, *scenarios, **env):
        base = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "SGL_PCIE_STATE": str(self.folder / "no-state"),
            "FAKE_OVERLAY_LOG": str(self.folder / "log"),
            "SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2": "0",
        }
        for name in ("LD_PRELOAD", "ASAN_OPTIONS"):
            if name in os.environ:
                base[name] = os.environ[name]
        command = [sys.executable, "-I", "-B", str(HERE / "hooked.py"), str(tree), *map(json.dumps, scenarios)]
        done = subprocess.run(command, env={**base, **env}, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def assertOnStock(self, made, used):
        self.assertEqual(made["overlay"], [])
        self.assertEqual("init_custom_ar" in made["stock"], used)


class OnTheLibrary(Trees):
    def check_calls(self, made, world, full_nvlink):
        self.assertEqual((made["comm"], made["disabled"], made.get("used")), ("CustomAllreduce", False, None), made)
        lines = [line.split() for line in made["overlay"]]
        self.assertEqual(
            [line[0] for line in lines],
            ["init", "register_buffer", "all_reduce", "all_reduce", "register_graph_buffers", "dispose"],
        )
        init, registered, eager, captured, graph = lines[:5]
        self.assertEqual(init[1:4], ["0", str(world), "0"])
        self.assertEqual(int(init[5]), 8 << 20, "as long as SGLang made rank_data")
        self.assertEqual(init[6], str(int(full_nvlink)), "the kernel is told the truth about NVLink")
        self.assertEqual(len(init[7:]), world)
        self.assertEqual(registered[2:], ["4096"] * world)
        self.assertEqual(eager[4:], ["2048", "1", "4096", str(8 << 20), "99"])
        self.assertEqual(captured[4:], ["1024", "1", "0", "0", "99"])
        self.assertNotEqual(eager[2], eager[3])
        self.assertEqual(graph[1:], ["0", "2", str(world)] + ["10@256", "11@512"] * world)
        self.assertEqual(set(made["stock"]), set(), "nothing of the kernel package's")
        self.assertIn(1000000 + (8 << 20), made["malloc"], "room for the library's signals")

    def test_every_era(self):
        for version in ERAS:
            with self.subTest(version):
                four, two, nvlink = self.run_in(self.tree(version), FOUR, TWO, NVLINK, **UNSAFE)
                self.check_calls(four, 4, False)
                self.check_calls(two, 2, False)
                self.check_calls(nvlink, 4, True)
                self.assertTrue(any("libupstream.so" in line[1] for line in four["log"]), four["log"])

    def test_library_says_why(self):
        for version in ("0.5.5", "0.5.11"):
            made = self.run_in(self.tree(version), {"fail": "all_reduce"}, {"fail": "init_custom_ar"}, **UNSAFE)
            self.assertEqual(made[0]["used"], ["RuntimeError", "libupstream.so: all_reduce was told to fail"])
            self.assertEqual(made[1]["raised"], ["RuntimeError", "libupstream.so: init_custom_ar was told to fail"])


class OnStock(Trees):
    def test_not_asked_for(self):
        """Stock's own decision: closed for four on PCIe, open for two; and the library is not even loaded."""
        for version in ("0.4.9.post4", "0.5.5", "0.5.11", real.NEWEST):
            for env in ({}, {FLAG: "0"}, {FLAG: "0", BACKEND: "upstream"}, {FLAG: "1", BACKEND: "upstream"}):
                with self.subTest(version=version, env=env):
                    four, two = self.run_in(self.tree(version), FOUR, TWO, **env)
                    self.assertTrue(four["disabled"])
                    self.assertOnStock(four, False)
                    self.assertOnStock(two, True)

    def test_not_there(self):
        """The kernel package's own, allowed on PCIe, as before."""
        for version in ("0.4.9.post4", "0.5.5", "0.5.11", real.NEWEST):
            with self.subTest(version):
                (four,) = self.run_in(self.tree(version, overlay=False), FOUR, **UNSAFE)
                self.assertFalse(four["disabled"])
                self.assertOnStock(four, True)

    def test_a_rank_that_differs(self):
        """All take stock, which on PCIe is no custom all-reduce for four, and the kernel package's for two."""
        words = ['"limits": "1,2"', '"limits": "1,3"']
        for version in ("0.5.5", "0.5.11", real.NEWEST):
            for other, said in (
                (words, "another %s" % LIMITS),
                (['"library": "', '"librarx": "'], "another libupstream.so"),
                (['{"limits"', '{"refused": "no such luck", "x"'], "rank 1: no such luck"),
            ):
                with self.subTest(version=version, other=other):
                    other = {"other": other}
                    four, two = self.run_in(
                        self.tree(version), {**FOUR, **other}, {**TWO, **other}, **UNSAFE, **{LIMITS: "1,2"}
                    )
                    self.assertTrue(four["disabled"])
                    self.assertOnStock(four, False)
                    self.assertOnStock(two, False if two["disabled"] else True)
                    self.assertTrue(any(said in line[1] for line in four["log"]), four["log"])

    def test_one_group_does_not_decide_for_the_next(self):
        four, again = self.run_in(
            self.tree("0.5.11"), {**FOUR, "other": ['"library": "', '"librarx": "']}, FOUR, **UNSAFE
        )
        self.assertTrue(four["disabled"])
        self.assertEqual(again["overlay"][-1], "dispose 0")

    def test_a_communicator_that_nobody_asked_for(self):
        """Built past the hook, behind a group that runs on the library, or that was about to be built: the ranks have
        agreed on nothing."""
        for version in ERAS:
            with self.subTest(version):
                for past in ({"unasked": True}, {"abandoned": True}):
                    first, four, two, last = self.run_in(
                        self.tree(version), FOUR, {**FOUR, **past}, {**TWO, **past}, FOUR, **UNSAFE
                    )
                    self.assertTrue(four["disabled"])
                    self.assertOnStock(four, False)
                    self.assertFalse(two["disabled"])
                    self.assertOnStock(two, True)
                    for made in (first, last):
                        self.assertEqual(made["overlay"][-1], "dispose 0")

    def test_a_library_that_cannot_be_used(self):
        for damage in ("abi", "bytes", "symbols"):
            for version in ("0.5.5", "0.5.11"):
                with self.subTest(version=version, damage=damage):
                    tree = self.tree(version, damage)
                    target = tree / "sgl_pcie" / "libupstream.so"
                    if damage == "bytes":
                        target.write_bytes(b"\x7fELF, but not really")
                    elif damage == "symbols":
                        shutil.copy(os.environ["SP_NO_OVERLAY"], target)
                    else:
                        shutil.copy(FAKE, target)
                    (made,) = self.run_in(tree, {**FOUR, "fail": "abi" if damage == "abi" else ""}, **UNSAFE)
                    self.assertTrue(made["disabled"])
                    self.assertOnStock(made, False)
                    self.assertTrue(any("libupstream.so" in line[1] for line in made["log"]), made["log"])

    def test_releases_that_hand_nothing_out(self):
        for version in BEFORE:
            with self.subTest(version):
                (four,) = self.run_in(self.tree(version), FOUR, **UNSAFE)
                self.assertEqual(four["overlay"], [])
                self.assertTrue(four.get("disabled", True))
                self.assertTrue(any("does not serve" in line[1] for line in four["log"]), four["log"])


if __name__ == "__main__":
    unittest.main()
