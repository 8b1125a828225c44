"""scripts/patch-release.py: what is committed is what it makes, and a new release costs one command.

New releases are simulated by the newest known wheel under a later version, as it is or with an edit.
"""

import contextlib
import io
import shutil
import tempfile
import unittest
import zipfile
from pathlib import Path

import real


class ReleaseTool(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for version in real.RELEASES:
            real.wheels.wheel(version)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.patches = self.folder / "patches"
        shutil.copytree(real.PATCHES, self.patches)
        self.tool = real.load_tool()

    def call(self, *args):
        """(exit status or message, standard output) of the tool on the copied patches."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            try:
                self.tool.main([*map(str, args), "--patches", str(self.patches)])
            except SystemExit as end:
                return end.code, out.getvalue()
        return 0, out.getvalue()

    def future(self, change=lambda path, text: text):
        """A wheel of 0.9.0: the newest release's texts, changed."""
        file = self.folder / "sglang-0.9.0-py3-none-any.whl"
        with zipfile.ZipFile(file, "w") as archive:
            for path in self.tool.era("0.9.0"):
                archive.writestr(path, change(path, real.pristine(real.NEWEST, path).decode()))
        return file

    def unchanged(self):
        return not real.differences(real.snapshot(self.patches), real.snapshot(real.PATCHES))

    def test_check(self):
        self.assertEqual(self.call("--check"), (0, ""))
        victim = self.patches / real.SET["texts"][0]["patch"]
        victim.write_bytes(victim.read_bytes() + b"\n")
        code, _ = self.call("--check")
        self.assertIn("differs: patches/" + real.SET["texts"][0]["patch"], code)

    def test_all_again_changes_nothing(self):
        self.assertEqual(self.call("--all")[0], 0)
        self.assertTrue(self.unchanged())

    def test_one_by_one_is_the_same(self):
        shutil.rmtree(self.patches)
        for version in real.RELEASES:
            self.assertEqual(self.call(version)[0], 0)
        once, made = self.tool.PatchSet(real.PATCHES), self.tool.PatchSet(self.patches)
        self.assertEqual(made.releases, once.releases)
        self.assertEqual(made.layout(), once.layout())
        for key, text in once.texts.items():
            self.assertEqual(made.texts[key], text._replace(old=()))

    def test_known_text_in_a_new_release(self):
        before = self.tool.PatchSet(self.patches).texts
        self.assertEqual(self.call(self.future())[0], 0)
        after = self.tool.PatchSet(self.patches)
        self.assertEqual(after.texts, before)
        self.assertEqual(after.releases["0.9.0"], real.RELEASES[real.NEWEST]["files"])
        self.assertTrue((self.patches / ("sglang/%s-0.9.0/0001-hand-out.patch" % real.NEWEST)).exists())
        self.assertFalse((self.patches / "sglang" / real.NEWEST).exists())

    def test_new_text_with_its_anchors(self):
        wheel = self.future(lambda path, text: "# a line more\n" + text)
        self.assertEqual(self.call(wheel)[0], 0)
        after = self.tool.PatchSet(self.patches)
        for path, pre in after.releases["0.9.0"].items():
            file = self.folder / path
            with zipfile.ZipFile(wheel) as archive:
                archive.extract(path, self.folder)
            self.assertEqual(real.blob_id(file.read_bytes()), pre)
            patch = self.patches / after.layout()[path, pre]
            real.git("apply", "--whitespace=nowarn", str(patch), cwd=self.folder)
            self.assertEqual(real.blob_id(file.read_bytes()), after.texts[path, pre].post)

    def test_what_moved_is_said(self):
        moves = {
            # what upstream might do: the text to replace, by what, and what must be said
            "renamed": (
                "= is_full_nvlink(",
                "= has_full_nvlink(",
                ["gate: one line should match", "none", "has_full_nvlink"],
            ),
            "twice": (
                "    return full_nvlink\n",
                "    full_nvlink = is_full_nvlink(physical_device_ids, world_size)\n    return full_nvlink\n",
                ["gate", ": lines "],
            ),
            "no class": ("class CustomAllreduce:", "class CustomAllReduce1:", ["hand-out needs", "CustomAllReduce1"]),
            "no dispatcher": ("def dispatch_custom_allreduce(", "def choose_all_reduce(", ["hand-out needs"]),
            "other test": ("if world_size > 2 and not full_nvlink:", "if not full_nvlink:", ["gate needs"]),
            "other caller": (
                "CAClass = dispatch_custom_allreduce(",
                "CAClass = choose_all_reduce(",
                ["hook needs", "choose_all_reduce"],
            ),
            "V1 unnamed": ('cls_name="CustomAllreduce",', 'cls_name="V1",', ["hook needs"]),
            "CRLF": ("\n", "\r\n", ["LF"]),
        }
        for what, (old, new, said) in moves.items():
            with self.subTest(what):
                code, _ = self.call(self.future(lambda path, text: text.replace(old, new)))
                self.assertIsInstance(code, str)
                for part in said + ["sglang/srt/distributed/", "release 0.9.0", "nothing was written"]:
                    self.assertIn(part, code)
                self.assertTrue(self.unchanged())

    def test_a_file_that_moved_is_said(self):
        wheel = self.future()
        away = self.folder / "sglang-0.9.1-py3-none-any.whl"
        with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(away, "w") as new:
            for name in old.namelist():
                new.writestr(name.replace("/custom_all_reduce.py", "/v1/custom_all_reduce.py"), old.read(name))
        code, _ = self.call(away)
        for part in ("custom_all_reduce.py (release 0.9.1)", "no such file", "/v1/custom_all_reduce.py", "nothing was written"):
            self.assertIn(part, code)
        self.assertTrue(self.unchanged())

    def test_a_wheel_that_cannot_be_read_is_named(self):
        wheel = self.folder / "sglang-0.9.2-py3-none-any.whl"
        self.assertIn("0.9.2-py3-none-any.whl' cannot be read", self.call(wheel)[0])
        wheel.write_bytes(b"cut short")
        self.assertIn("0.9.2-py3-none-any.whl' cannot be read", self.call(wheel)[0])
        self.assertTrue(self.unchanged())

    def test_a_changed_line_needs_a_revision(self):
        gate = self.tool.GATE_OF_BOTH
        changed = gate._replace(lines=gate.lines + "pass\n")
        first, last = self.tool.ERAS[-1]
        self.tool.ERAS = (*self.tool.ERAS[:-1], (first, {**last, self.tool.UTILS: (changed,)}))
        code, _ = self.call("--all")
        self.assertIn("raise REVISION", code)
        self.assertTrue(self.unchanged())
        self.tool.REVISION = self.tool.PatchSet(self.patches).revision + 1
        self.assertIn("run --all first", self.call(real.NEWEST)[0])
        self.assertEqual(self.call("--all")[0], 0)
        self.assertEqual(self.call("--check"), (0, ""))
        after = self.tool.PatchSet(self.patches)
        for (path, pre), text in after.texts.items():
            olds = [old["revision"] for old in text.old]
            before = real.TEXTS[path, pre]
            self.assertEqual(olds[-1:], [self.tool.REVISION - 1] if path == self.tool.UTILS else [])
            if path == self.tool.UTILS:
                self.assertEqual(text.old[-1]["post"], before["post"])
                kept = self.patches / text.old[-1]["patch"]
                self.assertEqual(kept.read_bytes(), (real.PATCHES / before["patch"]).read_bytes())
            else:
                self.assertEqual(text.post, before["post"])


if __name__ == "__main__":
    unittest.main()
