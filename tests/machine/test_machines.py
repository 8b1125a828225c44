"""Recordings of real machines, replayed: the findings that they should lead to, and no others."""

import json
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "cli")]

import machines  # noqa: E402
import schema  # noqa: E402
from expected import EXPECTED, SUBSETS, TEXTS  # noqa: E402

CLI = os.environ["SGL_PCIE"]


def verify(name, *arguments):
    command = [CLI, "verify", "--level", "1", "--json", "--from", str(HERE / "machines" / f"{name}.json"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == "", done.stderr
    data = json.loads(done.stdout)
    schema.validate(data)
    assert data["exit_code"] == done.returncode
    return data


def findings(data):
    found = []
    for finding in data["findings"]:
        code = f"({finding['code']})" if finding["code"] else ""
        found.append(f"{finding['id']}{code} {finding['level'][0]}")
    return sorted(found)


def backends(data):
    return tuple(data["backends"][name] for name in ("peer-push", "peer-pull", "host"))


class Machines(unittest.TestCase):
    maxDiff = None

    def test_every_recording_is_as_it_was_written_down(self):
        self.assertEqual(sorted(path.stem for path in (HERE / "machines").glob("*.json")), sorted(machines.MACHINES))
        for name, machine in machines.MACHINES.items():
            text = (HERE / "machines" / f"{name}.json").read_text()
            self.assertEqual(text, machines.text_of(machine), name)
            schema.validator("recording.json").validate(json.loads(text))

    def test_machine_by_machine(self):
        self.assertEqual(sorted(EXPECTED), sorted(machines.MACHINES))
        for name, (wanted, ids) in EXPECTED.items():
            with self.subTest(name):
                data = verify(name)
                self.assertEqual(findings(data), sorted(ids.split(", ")))
                self.assertEqual(backends(data), wanted)
                self.assertEqual(data["exit_code"], 1 if re.search(r" f\b", ids) else 0)

    def test_a_part_of_the_gpus_is_judged_for_itself(self):
        for (name, gpus), (wanted, present, absent) in SUBSETS.items():
            with self.subTest(name, gpus=gpus):
                data = verify(name, "--gpus", gpus)
                ids = {finding["id"] for finding in data["findings"]}
                self.assertEqual(present - ids, set())
                self.assertEqual(absent & ids, set())
                self.assertEqual(backends(data), wanted)

    def test_texts_and_remedies_are_of_this_platform(self):
        for name, (present, absent) in TEXTS.items():
            with self.subTest(name):
                text = "\n".join(f"{f['text']}\n{f['remedy']}" for f in verify(name)["findings"])
                for word in present:
                    self.assertIn(word, text)
                for word in absent:
                    self.assertNotIn(word, text)

    def test_labels_are_those_of_the_printed_matrices(self):
        wanted = {
            "m1-esc8000a-8xpro6000": ["- PIX NODE NODE SYS SYS SYS SYS"],
            "m2-wrx90-8xpro6000": ["- PIX PIX PIX NODE NODE NODE NODE"],
            "m2-wrx90-leaves": ["- PIX PXB PXB NODE NODE NODE NODE"],
            "m3-dual-epyc-8xpro6000-direct": ["- PHB PHB PHB SYS SYS SYS SYS"],
            "m5-h12ssl-2x3090-idle": ["- NODE"],
            "m6-b850-2x5090-patched": ["- PHB"],
            "m11-x99-2x3090-2x5060ti": ["- PHB PHB PHB"],
            "m12-x399-2x3090": ["- SYS"],
        }
        for name, (row,) in wanted.items():
            command = [CLI, "verify", "--level=1", "--from", str(HERE / "machines" / f"{name}.json")]
            text = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout
            found = re.search(r"(?m)^GPU 0  (-  .*)$", text)[1]
            self.assertEqual([cell.split(" ")[0] for cell in found.split("  ")], row.split(" "), name)


if __name__ == "__main__":
    unittest.main()
