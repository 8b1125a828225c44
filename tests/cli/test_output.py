"""What is printed when printing itself is the trouble, and what is too long or too odd for a golden case."""

import json
import os
import resource
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "patches")]

import real  # noqa: E402
import schema  # noqa: E402


def run(*arguments, **more):
    more = {"capture_output": True, "timeout": 60, "check": False} | more
    return subprocess.run([real.CLI, *arguments], **more)


class Tree(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.site = Path(self.scratch.name) / "site"
        real.site("0.5.23", self.site)


class Json(Tree):
    def test_list_says_what_the_manifest_says(self):
        data = json.loads(run("list", "--json").stdout)
        schema.validate(data)
        (found,) = [entry for entry in data["sets"] if entry["name"] == "sglang"]
        texts = {(text["path"], text["oid"]): text["patched_oid"] for text in found["texts"]}
        self.assertEqual(texts, {key: text["post"] for key, text in real.TEXTS.items()})
        releases = {release["version"]: release for release in found["releases"]}
        self.assertEqual(list(releases), list(real.RELEASES))
        for version, release in releases.items():
            files = {file["path"]: file["oid"] for file in release["files"]}
            self.assertEqual(files, real.RELEASES[version]["files"])
            self.assertEqual(release["refuse"], real.RELEASES[version].get("refuse"))

    def test_a_path_that_is_not_utf8_is_still_one_object(self):
        odd = os.fsencode(self.scratch.name) + b"/\xff\xc3\xa4 site"
        os.rename(self.site, odd)
        for command in ("status", "apply", "revert"):
            done = run(command, "--json", "--site", odd)
            self.assertEqual(done.returncode, 0, done)
            data = json.loads(done.stdout)
            schema.validate(data)
            self.assertTrue(data["install"]["root"].endswith("/\ufffdä site"))

    def test_every_command_with_help_and_with_a_wrong_option_is_one_object(self):
        for command in ("status", "list", "apply", "revert", "recover"):
            for option, code in (("--help", 0), ("--bogus", 2)):
                done = run(command, option, "--json")
                self.assertEqual(done.returncode, code)
                self.assertEqual(done.stderr, b"")
                schema.validate(json.loads(done.stdout))

    def test_the_schema_refuses_what_is_not_described(self):
        data = json.loads(run("status", "--json", "--site", str(self.site)).stdout)
        for change in ({"exit_code": 4}, {"extra": 1}, {"pending": "no"}, {"install": {}}, {"schema": "sgl-pcie/2"}):
            with self.assertRaises(schema.jsonschema.ValidationError):
                schema.validate(data | change)


class Limits(Tree):
    def under(self, blocks, *arguments):
        """Of 1024 bytes. Nothing may be left, whatever it is that does not fit."""
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (blocks << 10, blocks << 10))  # noqa: E731
        before = real.snapshot(Path(self.scratch.name))
        done = run(*arguments, text=True, preexec_fn=limit)
        self.assertEqual(done.returncode, 5, done)
        self.assertRegex(done.stderr, "cannot write '.*': File too large: the limit is %d bytes\n  next: ulimit -f" % (blocks << 10))
        self.assertEqual(real.snapshot(Path(self.scratch.name)), before)

    def test_files_that_may_not_be_as_large(self):
        for blocks in (0, 4, 16):  # the journal, a file of ours, one of SGLang's
            self.under(blocks, "apply", "--site", self.site)
        out = Path(self.scratch.name) / "report.json"
        for text in (None, "of before"):
            if text:
                out.write_text(text)
            self.under(0 if text is None else 1, "report", "--site", self.site, "--out", out)


class Streams(Tree):
    def test_a_full_disk_under_standard_output_is_exit_5(self):
        for arguments in (["list"], ["--help"], ["--version"], ["list", "--json"], ["status", "--site", str(self.site)]):
            with open("/dev/full", "wb") as full:
                done = run(*arguments, capture_output=False, stdout=full, stderr=subprocess.PIPE)
            self.assertEqual(done.returncode, 5, arguments)
            self.assertIn(b"cannot write standard output", done.stderr)

    def test_an_error_of_its_own_keeps_its_status_when_it_cannot_be_written(self):
        with open("/dev/full", "wb") as full:
            done = run("aply", "--json", capture_output=False, stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 2)

    def test_closed_streams_never_lend_their_numbers_to_files_of_the_install(self):
        command = '"$0" apply --site "$1" 0<&- 1>&- 2>&-; echo $?; "$0" revert --quiet --site "$1" 0<&- 1>&- 2>&-; echo $?'
        before = real.snapshot(self.site)
        done = subprocess.run(["bash", "-c", command, real.CLI, str(self.site)], capture_output=True, check=True)
        self.assertEqual(done.stdout.split(), [b"5", b"0"])  # what it says is lost, which --quiet does not mind
        self.assertEqual(real.snapshot(self.site), before)

    def test_progress_and_errors_never_reach_standard_output(self):
        done = run("status", "--site", "/nonexistent")
        self.assertEqual(done.stdout, b"")
        self.assertTrue(done.stderr.startswith(b"sgl-pcie: "))


if __name__ == "__main__":
    unittest.main()
