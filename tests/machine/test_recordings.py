"""Malformed recordings are refused, by the name of what is wrong; good ones come back as they were."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "cli")]

import machines  # noqa: E402
import schema  # noqa: E402

CLI = os.environ["SGL_PCIE"]
GOOD = machines.MACHINES["m8-amd-4xpro6000-acs-iommu"].data


def changed(path, value):
    """The good recording with one place changed; "a.b[0].c" as a list of keys. None removes it."""
    data = json.loads(json.dumps(GOOD))
    at = data
    for key in path[:-1]:
        at = at[key]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return json.dumps(data)


BAD = [
    ("", "not valid JSON"),
    ("[]", "not a JSON object"),
    ('{"a": 1, "a": 2}', "duplicate"),
    ("[" * 100 + "]" * 100, "nested"),
    ("{}", "field 'schema' is missing"),
    (changed(["schema"], "sgl-pcie-recording/2"), "field 'schema' is 'sgl-pcie-recording/2'"),
    (changed(["extra"], 1), "field 'extra' is not known"),
    (changed(["machine", "serial"], "x"), "machine: field 'serial' is not known"),
    (changed(["machine"], []), "machine: not an object"),
    (changed(["machine", "family"], "25"), "machine: field 'family' is not an integer"),
    (changed(["machine", "family"], -2), "machine: field 'family' is -2, not within"),
    (changed(["machine", "board"], "x" * 600), "machine: field 'board' is longer than 512 bytes"),
    (changed(["machine", "hypervisor"], 0), "machine: field 'hypervisor' is not true or false"),
    (changed(["gpus"], {}), "field 'gpus' is not a list"),
    (changed(["gpus", 1], 7), "gpus[1]: not an object"),
    (changed(["gpus", 1, "bdf"], None), "gpus[1]: field 'bdf' is missing"),
    (changed(["gpus", 1, "bdf"], "21:00.0"), "gpus[1]: field 'bdf' is '21:00.0', not like"),
    (changed(["gpus", 1, "bdf"], GOOD["gpus"][0]["bdf"]), "gpus[1]: '0000:21:00.0' is there twice"),
    (changed(["gpus"], GOOD["gpus"] * 17), "field 'gpus' has more than 64 items"),
    (changed(["pci", 0, "parent"], GOOD["pci"][0]["bdf"]), "pci[0]: parent '0000:20:01.1' is no host bridge"),
    (changed(["pci", 0, "parent"], GOOD["pci"][1]["bdf"]), "is no host bridge and not listed before"),
    (changed(["pci", 1, "bdf"], "0000:20:01.1"), "pci[1]: '0000:20:01.1' is there twice"),
    (changed(["pci", 0, "bdf"], "0000:20:01.1x"), "pci[0]: field 'bdf'"),
    (changed(["pci", 0, "acs"], "on"), "pci[0]: field 'acs' is 'on', not a number like"),
    (changed(["pci", 0, "acs"], "0x1ffffffff"), "pci[0]: field 'acs'"),
    (changed(["pci", 0, "acs"], "0x-1"), "pci[0]: field 'acs'"),
    (changed(["pci", 0, "speed"], "16 GT/s"), "pci[0]: field 'speed' is not a number"),
    (changed(["pci", 0, "speed"], 1e300), "pci[0]: field 'speed' is 1e+300, not within"),
    (changed(["pairs", 0, "to"], 4), "pairs[0]: from 0 to 4 is no pair of 4 GPUs"),
    (changed(["pairs", 0, "to"], 0), "pairs[0]: from 0 to 0 is no pair"),
    (changed(["pairs", 0, "to"], -1), "pairs[0]: field 'to' is -1, not within 0 to"),
    (changed(["pairs", 0, "label"], "NV4"), "pairs[0]: field 'label' is 'NV4'"),
    (changed(["pairs", 0, "read"], "ok"), "pairs[0]: field 'read' is 'ok'"),
    (changed(["processes"], [{"gpu": 4, "pid": 1}]), "processes[0]: there is no GPU 4"),
]


def verify(path):
    return subprocess.run([CLI, "verify", "--level=1", "--from", str(path)], capture_output=True, text=True, check=False)


class Recordings(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def test_malformed_ones_are_refused_by_name(self):
        for text, message in BAD:
            with self.subTest(message):
                path = self.folder / "bad.json"
                path.write_text(text)
                done = verify(path)
                self.assertEqual(done.returncode, 1, done)
                self.assertIn(message, done.stderr)
                self.assertIn("bad.json", done.stderr)
                self.assertEqual(done.stdout, "")

    def test_null_is_absent(self):
        path = self.folder / "null.json"
        path.write_text(changed(["machine", "options"], None).replace('"family": 26', '"family": null'))
        self.assertEqual(verify(path).returncode, 1)  # its findings, not its form
        self.assertIn("grant.acs", verify(path).stdout)

    def test_files_folders_and_bundles(self):
        text = json.dumps(GOOD)
        for name, content in (("recording.json", text), ("report.json", json.dumps({"recording": GOOD, "status": None}))):
            folder = self.folder / name.split(".", maxsplit=1)[0]
            folder.mkdir()
            (folder / name).write_text(content)
            self.assertIn("grant.acs  FAIL", verify(folder).stdout)
            self.assertIn("grant.acs  FAIL", verify(folder / name).stdout)

    def test_what_is_not_there(self):
        done = verify(self.folder / "none.json")
        self.assertEqual(done.returncode, 5)
        self.assertIn("none.json", done.stderr)
        done = verify(self.folder)
        self.assertEqual(done.returncode, 5)
        self.assertIn("no recording.json and no report.json", done.stderr)

    def test_levels_and_gpus_that_do_not_exist(self):
        good = str(HERE / "machines" / "m6-b850-2x5090-patched.json")
        for arguments in (["--level", "0"], ["--level", "9"], ["--level", "x"], ["--level", "11"], ["--gpus", "2"]):
            done = subprocess.run([CLI, "verify", "--from", good, *arguments], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2, arguments)

    def test_the_schema_knows_what_is_refused(self):
        schema.validator("recording.json").validate(GOOD)
        for text, message in BAD[4:]:
            if "not within" in message or "no pair" in message or "twice" in message or "there is no GPU" in message:
                continue  # what a schema cannot say
            if "no host bridge" in message or text.count("ffff"):
                continue
            with self.assertRaises(schema.jsonschema.ValidationError, msg=message):
                schema.validator("recording.json").validate(json.loads(text))


if __name__ == "__main__":
    unittest.main()
