"""scripts/patch-kernel.py, on a repository whose tags have the stand-in's text: what is committed is what it makes."""

import contextlib
import io
import shutil
import tempfile
import unittest
from pathlib import Path

import real
import source


class KernelTool(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.clone, self.patches = Path(folder.name, "clone"), Path(folder.name, "patches")
        self.clone.mkdir()
        source.git(self.clone, "init", "-q")
        self.tool = real.load_tool("patch-kernel")

    def tag(self, version, text, path=source.OLD):
        for old in (source.OLD, source.NEW):
            (self.clone / old).unlink(missing_ok=True)
        if path:
            (self.clone / path).parent.mkdir(parents=True, exist_ok=True)
            (self.clone / path).write_bytes(text)
        source.git(self.clone, "add", "-A")
        source.git(self.clone, "commit", "-q", "--allow-empty", "-m", version)
        source.git(self.clone, "tag", "v" + version)

    def call(self, *args):
        """(exit status or message, standard output) of the tool."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            try:
                self.tool.main([str(self.clone), *args, "--patches", str(self.patches)])
            except SystemExit as end:
                return end.code, out.getvalue()
        return 0, out.getvalue()

    def test_what_is_committed(self):
        self.tag("0.8.1", b"", path=None)
        self.tag("0.8.2", source.text())
        self.tag("0.8.2.post1", source.text(), source.NEW)
        source.git(self.clone, "tag", "gateway-v0.8.2")
        self.assertEqual(self.call()[0], 0)
        self.assertEqual(real.differences(real.snapshot(self.patches), real.snapshot(source.PATCHES)), set())
        self.assertEqual(self.call("--check"), (0, ""))
        (victim,) = (self.patches / "sgl-kernel/0.8.2").iterdir()
        victim.write_bytes(victim.read_bytes() + b"\n")
        self.assertIn("differs: patches/sgl-kernel/0.8.2/", self.call("--check")[0])

    def test_the_other_set_stays(self):
        shutil.copytree(real.PATCHES, self.patches)
        before = self.patches / "manifest.json"
        self.tag("0.8.2", source.text())
        sglang = real.json.loads(before.read_text())["sets"]["sglang"]
        self.call()
        after = real.json.loads(before.read_text())["sets"]
        self.assertEqual(after["sglang"], sglang)
        self.assertEqual([release["version"] for release in after["sgl-kernel"]["releases"]], ["0.8.2"])
        self.assertEqual(len(list((self.patches / "sgl-kernel").rglob("*.patch"))), 1)

    def test_what_moved_is_said(self):
        text = source.text()
        for what, new, said in (
            ("renamed", text.replace(b"full_nvlink_", b"fully_connected_"), "one line should match"),
            ("twice", text.replace(b"#include <array>\n", b"#include <array>\n" * 2), "lines 9, 10"),
            ("no kernel", text.replace(b"cross_device_reduce_2stage(", b"two_stage("), "cross_device_reduce_2stage"),
            ("CRLF", text.replace(b"\n", b"\r\n"), "LF"),
        ):
            with self.subTest(what):
                self.tag("0.9.0", new)
                code, _ = self.call()
                source.git(self.clone, "tag", "-d", "v0.9.0")
                for part in (said, source.OLD, real.blob_id(new), "nothing was written"):
                    self.assertIn(part, code)
                self.assertFalse(self.patches.exists())

    def test_both_places_or_none(self):
        self.tag("0.1.0", b"", path=None)
        self.assertIn("no release tag", self.call()[0])
        self.tag("0.8.2", source.text())
        (self.clone / source.NEW).parent.mkdir(parents=True)
        (self.clone / source.NEW).write_bytes(source.text())
        source.commit(self.clone)
        source.git(self.clone, "tag", "v0.9.0")
        self.assertIn("v0.9.0 has the file in both layouts", self.call()[0])

    def test_a_changed_line_needs_a_revision(self):
        self.tag("0.8.2", source.text())
        self.call()
        self.tool.MEMBERS = self.tool.MEMBERS.replace("64 * 1024", "32 * 1024")
        self.assertIn("raise REVISION", self.call()[0])
        self.tool.REVISION = 2
        self.assertEqual(self.call()[0], 0)
        (text,) = real.json.loads((self.patches / "manifest.json").read_text())["sets"]["sgl-kernel"]["texts"]
        self.assertEqual([old["patch"] for old in text["old"]], ["sgl-kernel/r1/0.8.2/0001-pcie-branch.patch"])


if __name__ == "__main__":
    unittest.main()
