"""pip and `sgl-pcie` on the same environment, in any order; and an earlier revision of the patch set.

The environment is a venv with a whole released wheel, installed by pip without its dependencies (0.5.10.post1: pure
Python, two patched files, any interpreter). "As stock" is judged by tests/runtime/harness.py, which see.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import real

VERSION = "0.5.10.post1"
FILES = real.RELEASES[VERSION]["files"]
ASKED = {"SGLANG_FORCE_CUSTOM_AR_PCIE": "unsafe", "SGLANG_PCIE_AR_BACKEND": "upstream"}


class Environment(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.venv = Path(scratch.name) / "venv"
        subprocess.run([sys.executable, "-m", "venv", str(cls.venv)], check=True)
        cls.python = cls.venv / "bin" / "python"
        (cls.site,) = cls.venv.glob("lib/python3*/site-packages")
        cls.wheel = str(real.wheels.wheel(VERSION))
        cls.empty = real.snapshot(cls.site)
        cls.pip("install", cls.wheel)
        cls.stock = real.snapshot(cls.site)
        cls.stock_decisions = cls.decide()

    @classmethod
    def pip(cls, command, *args):
        more = {"install": ["--no-deps", "--no-index", "--no-compile"], "uninstall": ["--yes"]}.get(command, [])
        done = subprocess.run(
            [str(cls.python), "-m", "pip", "--disable-pip-version-check", command, *more, *args],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @classmethod
    def decide(cls):
        harness = real.ROOT / "tests" / "runtime" / "harness.py"
        env = {**os.environ, **ASKED}
        out = subprocess.run(
            [sys.executable, "-I", "-B", str(harness), str(cls.site)], env=env, capture_output=True, check=True
        )
        return json.loads(out.stdout)["decisions"]

    def tearDown(self):
        if real.differences(
            real.snapshot(self.site), self.stock
        ):  # a test has failed: the next begins anew all the same
            for entry in self.site.iterdir():
                if entry.name not in self.empty:
                    shutil.rmtree(entry)
            self.pip("install", self.wheel)

    def do(self, command, code=0, **more):
        rc, answer = real.ask(command, "--python", self.python, **more)
        self.assertEqual(rc, code, answer)
        return answer

    def states(self):
        files = self.do("status")["install"]["files"]
        return {file["path"]: (file["state"], file["oid"]) for file in files}

    def record(self):
        return (self.site / ("sglang-%s.dist-info" % VERSION) / "RECORD").read_bytes()

    def assertSite(self, expected, but=()):
        """The site has these files, modes and bytes; `but` are patched ones."""
        found = real.snapshot(self.site)
        self.assertEqual(found.keys() ^ expected.keys(), set())
        self.assertEqual(real.differences(found, expected), set(but))


class Pip(Environment):
    def test_pip_sees_the_runtime(self):
        record = self.record()
        self.do("apply")
        self.assertIn("sgl-pcie-runtime", self.pip("list"))
        shown = self.pip("show", "--files", "sgl-pcie-runtime")
        ours = {path for path in real.snapshot(self.site).keys() - self.stock.keys() if (self.site / path).is_file()}
        self.assertTrue(ours)
        for path in ours:
            self.assertIn("  " + path, shown)
        self.assertEqual(self.record(), record)
        self.assertNotEqual(self.decide(), self.stock_decisions)
        self.do("revert")
        self.assertSite(self.stock)

    def test_reinstalled(self):
        """`pip install --force-reinstall sglang` takes the patch away and leaves the runtime."""
        self.do("apply")
        self.pip("install", "--force-reinstall", self.wheel)
        answer = self.do("status")
        self.assertEqual({file["state"] for file in answer["install"]["files"]}, {"pristine"})
        self.assertEqual(answer["install"]["runtime"], "present")
        self.assertIn("patch gone", answer["message"])
        self.assertEqual(self.decide(), self.stock_decisions)
        self.do("apply")
        self.assertEqual({state for state, _ in self.states().values()}, {"applied"})
        self.pip("install", "--force-reinstall", self.wheel)
        self.do("revert")
        self.assertSite(self.stock)

    def test_runtime_uninstalled_then_reverted(self):
        self.do("apply")
        self.pip("uninstall", "sgl-pcie-runtime")
        self.assertSite(self.stock, but=FILES)
        self.assertEqual(self.decide(), self.stock_decisions)
        answer = self.do("status")
        self.assertEqual({file["state"] for file in answer["install"]["files"]}, {"applied"})
        self.assertEqual(answer["install"]["runtime"], "absent")
        self.assertIn("sgl-pcie-runtime is gone", answer["message"])
        self.do("revert")
        self.assertSite(self.stock)

    def test_runtime_uninstalled_then_applied(self):
        self.do("apply")
        applied = real.snapshot(self.site)
        self.pip("uninstall", "sgl-pcie-runtime")
        self.do("apply")
        self.assertSite(applied)
        self.do("revert")

    def test_both_uninstalled(self):
        for order in (("sgl-pcie-runtime", "sglang"), ("sglang", "sgl-pcie-runtime")):
            with self.subTest(order):
                self.do("apply")
                env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
                subprocess.run([str(self.python), "-c", "import sgl_pcie"], env=env, check=True)
                self.assertTrue((self.site / "sgl_pcie" / "__pycache__").exists())
                self.pip("uninstall", order[0])
                if order[0] == "sglang":
                    self.assertFalse((self.site / "sglang").exists())
                    self.do("status", code=2)
                self.pip("uninstall", order[1])
                self.assertSite(self.empty)
                self.assertFalse((self.site / "sgl_pcie").exists(), "a folder of bytecode only")
                self.pip("install", self.wheel)
                self.assertSite(self.stock)


class Revision(Environment):
    """The set one revision later, made by scripts/patch-release.py: another line at the gate that V1 and V2 share."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.later = cls.venv.parent / "later"
        cls.later.mkdir()
        (cls.later / "python").symlink_to(real.ROOT / "python")
        shutil.copytree(real.PATCHES, cls.later / "patches")
        for version in real.RELEASES:
            real.wheels.wheel(version)
        tool = real.load_tool()
        first, last = tool.ERAS[-1]
        gate = tool.GATE_OF_BOTH._replace(lines="# revised\n" + tool.GATE_OF_BOTH.lines)
        tool.ERAS = (*tool.ERAS[:-1], (first, {**last, tool.UTILS: (gate,)}))
        tool.REVISION = real.SET["revision"] + 1
        before = tool.PatchSet(cls.later / "patches")
        after = before.anew(tool.REVISION)
        for version in before.releases:
            after.add(version, real.wheels.wheel(version))
        after.adopt_old(before)
        after.write()
        cls.posts = {path: after.texts[path, pre].post for path, pre in FILES.items()}

    def test_upgraded_in_place_then_reverted(self):
        self.do("apply")
        old = self.states()
        rc, answer = real.ask("status", "--python", self.python, data=self.later)
        states = {file["path"]: file["state"] for file in answer["install"]["files"]}
        self.assertEqual(states, {real.TOOL.CAR: "applied", real.TOOL.UTILS: "applied-old"})
        self.do("apply", data=self.later)
        rc, answer = real.ask("status", "--python", self.python, data=self.later)
        self.assertEqual({file["path"]: file["oid"] for file in answer["install"]["files"]}, self.posts)
        self.assertEqual({file["state"] for file in answer["install"]["files"]}, {"applied"})
        self.assertIn("# revised", (self.site / real.TOOL.UTILS).read_text())
        self.assertNotEqual({path: oid for path, (_, oid) in old.items()}, self.posts)
        self.do("revert", data=self.later)
        self.assertSite(self.stock)

    def test_old_revision_reverted_by_the_later_program(self):
        self.do("apply")
        self.do("revert", data=self.later)
        self.assertSite(self.stock)

    def test_later_revision_is_not_ours_to_touch(self):
        """A program of the earlier revision does not know the later one's bytes: it refuses."""
        self.do("apply", data=self.later)
        before = real.snapshot(self.site)
        self.do("apply", code=4)
        self.do("revert", code=4)
        self.assertSite(before)
        self.do("revert", data=self.later)
        self.assertSite(self.stock)


if __name__ == "__main__":
    unittest.main()
