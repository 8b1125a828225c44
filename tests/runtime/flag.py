"""The flag: how it is read, and what is decided from it."""

import json
import logging
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "patches")]

import real  # noqa: E402
from sgl_pcie import flag  # noqa: E402

STOCK, UPSTREAM, COMMUNICATOR = flag.STOCK, flag.UPSTREAM, flag.COMMUNICATOR
QUIET, SAID = False, True


class Decide(unittest.TestCase):
    # value, backend, built -> action, whether a line is logged, what it must name
    TABLE = [
        (None, "auto", True, STOCK, QUIET, ""),
        (None, "upstream", True, STOCK, QUIET, ""),
        (None, "nonsense", True, STOCK, QUIET, ""),
        ("0", "auto", True, STOCK, QUIET, ""),
        ("0", "upstream", True, STOCK, QUIET, ""),
        ("1", "auto", True, STOCK, SAID, "no verdict"),
        ("1", "peer", True, STOCK, SAID, "no verdict"),
        ("1", "host", False, STOCK, SAID, "no verdict"),
        ("1", "upstream", True, STOCK, SAID, "no verdict"),
        ("1", "nccl", True, STOCK, SAID, "'nccl'"),
        ("unsafe", "auto", True, COMMUNICATOR, SAID, "unsafe"),
        ("unsafe", "peer", True, COMMUNICATOR, SAID, "unsafe"),
        ("unsafe", "host", True, COMMUNICATOR, SAID, "unsafe"),
        ("unsafe", "auto", False, STOCK, SAID, "no communicator"),
        ("unsafe", "peer", False, STOCK, SAID, "no communicator"),
        ("unsafe", "host", False, STOCK, SAID, "no communicator"),
        ("unsafe", "upstream", True, UPSTREAM, SAID, "unsafe"),
        ("unsafe", "upstream", False, UPSTREAM, SAID, "unsafe"),
        ("unsafe", "", True, STOCK, SAID, "''"),
        ("", "auto", True, STOCK, SAID, "''"),
        ("true", "upstream", True, STOCK, SAID, "'true'"),
        ("UNSAFE", "upstream", True, STOCK, SAID, "'UNSAFE'"),
        (" 1", "auto", True, STOCK, SAID, "' 1'"),
        ("2", "auto", True, STOCK, SAID, "'2'"),
        ("1\nforged line", "auto", True, STOCK, SAID, r"1\nforged"),
    ]

    def test_truth_table(self):
        for value, backend, built, action, said, names in self.TABLE:
            with self.subTest(value=value, backend=backend, built=built):
                made = flag.decide(value, backend, built)
                self.assertEqual(made.action, action)
                self.assertEqual(made.level > logging.NOTSET, said)
                self.assertIn(names, made.reason)
                self.assertNotIn("\n", made.reason)

    def test_what_a_doubt_keeps_from(self):
        for value, backend, built, asked in (
            ("1", "auto", True, COMMUNICATOR),
            ("1", "host", False, STOCK),
            ("1", "upstream", True, UPSTREAM),
            ("1", "upstream", False, UPSTREAM),
            ("1", "nccl", True, STOCK),
            ("unsafe", "peer", True, COMMUNICATOR),
            ("0", "auto", True, STOCK),
            (None, "auto", True, STOCK),
        ):
            with self.subTest(value=value, backend=backend, built=built):
                self.assertEqual(flag.decide(value, backend, built).asked, asked)


class Read(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, "flag.json")

    def persisted(self, data):
        Path(self.file).write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
        return flag.read({}, self.file)

    def test_the_variable_wins(self):
        self.persisted({"schema": "sgl-pcie-flag/1", "value": "1"})
        for value in ("0", "unsafe", "", "nonsense"):
            self.assertEqual(flag.read({flag.FLAG: value}, self.file), (value, "environment"))

    def test_persisted(self):
        for value in ("1", "0", "unsafe"):
            self.assertEqual(self.persisted({"schema": "sgl-pcie-flag/1", "value": value}), (value, "install"))

    def test_unusable_is_absent(self):
        good = json.dumps({"schema": "sgl-pcie-flag/1", "value": "1"}).encode()
        for data in (
            b"",
            b"1",
            b"[]",
            b"null",
            b"{}",
            b"[" * 4000,
            b"\xff\xfe" + good,
            good[:-1],
            good + b" " * 4096,
            good[:-1] + b', "value": "0"}',
            {"value": "1"},
            {"schema": "sgl-pcie-flag/1"},
            {"schema": "sgl-pcie-flag/2", "value": "1"},
            {"schema": "sgl-pcie-flag/1", "value": 1},
            {"schema": "sgl-pcie-flag/1", "value": ["1"]},
            {"schema": "sgl-pcie-flag/1", "value": None},
            {"schema": "sgl-pcie-flag/1", "value": ""},
            {"schema": "sgl-pcie-flag/1", "value": "1" * 16},
        ):
            with self.subTest(data=data):
                self.assertEqual(self.persisted(data), (None, "unset"))

    def test_not_a_file_is_absent(self):
        absent = (None, "unset")
        self.assertEqual(flag.read({}, self.file), absent)
        os.mkdir(self.file)
        self.assertEqual(flag.read({}, self.file), absent)
        os.rmdir(self.file)
        os.mkfifo(self.file)
        self.assertEqual(flag.read({}, self.file), absent)
        os.unlink(self.file)
        Path(self.file + ".real").write_text('{"schema": "sgl-pcie-flag/1", "value": "1"}')
        os.symlink(self.file + ".real", self.file)
        self.assertEqual(flag.read({}, self.file), absent)

    @unittest.skipIf(os.geteuid() != 0, "only root can give a file away")
    def test_another_users_file_is_absent(self):
        self.persisted({"schema": "sgl-pcie-flag/1", "value": "1"})
        os.chown(self.file, 12345, 12345)
        self.assertEqual(flag.read({}, self.file), (None, "unset"))

    def test_no_descriptor_is_leaked(self):
        self.test_unusable_is_absent()
        before = len(os.listdir("/proc/self/fd"))
        self.test_unusable_is_absent()
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)


class AsTheProgramReadsIt(unittest.TestCase):
    """`sgl-pcie status` and SGLang must not disagree about what is on."""

    def test_alike(self):
        with tempfile.TemporaryDirectory() as folder:
            site = real.site(real.NEWEST, folder)
            file = site / ".sgl-pcie" / "flag.json"
            file.parent.mkdir()
            good = '{"schema": "sgl-pcie-flag/1", "value": "%s"}'
            for text in (
                good % "1",
                good % "0",
                good % "unsafe",
                good % "x",
                good % ("1" * 15),
                good % ("1" * 16),
                good % "",
                "",
                "{}",
                "[",
                good % "1" + " " * 4096,
            ):
                for env in ({}, {flag.FLAG: "0"}, {flag.FLAG: "unsafe"}, {flag.FLAG: ""}):
                    file.write_text(text)
                    read = flag.read(env, str(file))
                    said = real.ask("status", "--site", site, env={"PATH": os.environ["PATH"], **env})[1]["flag"]
                    with self.subTest(text=text[:80], env=env):
                        self.assertEqual((said["value"] or "", said["source"]), (read.value or "", read.source))


class Process(unittest.TestCase):
    def child(self, code, **env):
        env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT / "python"),
            "SGL_PCIE_STATE": "/nonexistent",
            **env,
        }
        done = subprocess.run([sys.executable, "-B", "-c", code], env=env, capture_output=True, text=True, check=True)
        return done.stdout.strip(), done.stderr.strip().splitlines()

    def test_decided_and_said_once(self):
        code = (
            "import logging; logging.basicConfig()\n"
            "from sgl_pcie.flag import decision\n"
            "decision(); print(decision().action)"
        )
        for env, action, lines in (
            ({}, STOCK, 0),
            ({flag.FLAG: "0"}, STOCK, 0),
            ({flag.FLAG: "1"}, STOCK, 1),
            ({flag.FLAG: "yes"}, STOCK, 1),
            ({flag.FLAG: "unsafe"}, STOCK, 1),
            ({flag.FLAG: "unsafe", flag.BACKEND: "upstream"}, UPSTREAM, 1),
        ):
            with self.subTest(env):
                out, err = self.child(code, **env)
                self.assertEqual((out, len(err)), (action, lines), err)
                self.assertTrue(all(line.startswith("WARNING:sgl_pcie:" + action) for line in err), err)

    def test_import_is_small(self):
        code = (
            "import functools, json, logging, os, stat, sys, typing\n"
            "before = set(sys.modules)\n"
            "import sgl_pcie\n"
            "print(sorted(set(sys.modules) - before))"
        )
        self.assertEqual(self.child(code), ("['sgl_pcie', 'sgl_pcie.flag']", []))

    def test_old_syntax(self):
        """SGLang of the first releases runs on Python 3.8."""
        import ast

        for file in (ROOT / "python" / "sgl_pcie").glob("*.py"):
            ast.parse(file.read_text(), str(file), feature_version=(3, 8))


if __name__ == "__main__":
    unittest.main()
