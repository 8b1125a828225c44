"""On a terminal tables are aligned and coloured; elsewhere they are plain lines of two-space columns."""

import os
import pty
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "patches")]

import real  # noqa: E402

SGR = re.compile(r"\x1b\[([0-9;]*)m")
GREEN, RED = "\x1b[32m", "\x1b[31m"
YELLOW = "\x1b[33m"


def read_all(fd):
    parts = []
    while True:
        try:
            part = os.read(fd, 65536)
        except OSError:  # how Linux says that the other side is gone
            part = b""
        if not part:
            return b"".join(parts).decode()
        parts.append(part)


def on_terminal(*arguments, **variables):
    """(exit status, what a terminal receives as standard output)."""
    ours, theirs = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TERM": "xterm"} | variables
    process = subprocess.Popen([real.CLI, *arguments], stdout=theirs, stdin=subprocess.DEVNULL, env=environment)
    os.close(theirs)
    text = read_all(ours)
    os.close(ours)
    return process.wait(60), text.replace("\r\n", "\n")


def in_pipe(*arguments, **variables):
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TERM": "xterm"} | variables
    done = subprocess.run([real.CLI, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout


def table(text):
    """The rows of the table of files, its header first."""
    lines = SGR.sub("", text).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("file "))
    end = next((i for i in range(start, len(lines)) if not lines[i]), len(lines))
    return lines[start:end]


class Terminal(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.site = str(real.site("0.5.23", Path(cls.scratch.name) / "site"))
        subprocess.run([real.CLI, "apply", "--quiet", "--site", cls.site], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def assert_aligned(self, rows):
        columns = [match.start() for match in re.finditer(r"\S+", rows[0])]
        self.assertEqual(len(columns), 5)
        for row in rows:
            for column in columns[1:]:
                self.assertEqual(row[column - 2 : column], "  ", row)
                self.assertNotEqual(row[column], " ", row)

    def test_columns_are_aligned_and_states_coloured(self):
        status, text = on_terminal("status", "--site", self.site)
        self.assertEqual(status, 0)
        self.assert_aligned(table(text))
        self.assertEqual(text.count(f"{GREEN}applied\x1b[0m"), len(table(text)) - 1)
        self.assertTrue(text.splitlines()[-1].startswith(f"{YELLOW}!\x1b[0m patched, not built"))

    def test_every_colour_ends_on_its_line(self):
        for arguments in (["status"], ["apply"], ["revert", "--dry-run"]):
            _, text = on_terminal(*arguments, "--site", self.site)
            for line in text.splitlines():
                codes = SGR.findall(line)
                self.assertEqual(codes[1::2], ["0"] * (len(codes) // 2), line)
                self.assertEqual(len(codes) % 2, 0, line)

    def test_a_pipe_gets_plain_lines(self):
        text = in_pipe("status", "--site", self.site)
        self.assertNotIn("\x1b", text)
        for row in table(text):
            self.assertEqual(len(row.split("  ")), 5, row)
            self.assertNotIn("   ", row)

    def test_colour_is_as_it_was_asked_for(self):
        for arguments, variables, coloured in (
            ([], {}, True),
            ([], {"NO_COLOR": "1"}, False),
            ([], {"NO_COLOR": ""}, True),
            ([], {"TERM": "dumb"}, False),
            (["--color=never"], {}, False),
            (["--color=always"], {"NO_COLOR": "1", "TERM": "dumb"}, True),
            (["--color", "auto"], {}, True),
        ):
            _, text = on_terminal("status", "--site", self.site, *arguments, **variables)
            self.assertEqual("\x1b" in text, coloured, (arguments, variables))
            self.assert_aligned(table(text))
        self.assertIn("\x1b", in_pipe("status", "--site", self.site, "--color=always"))

    def test_marks_are_ascii_without_utf8(self):
        for variables, mark in (
            ({"LC_ALL": "C"}, "[ok] "),
            ({"LC_ALL": "", "LC_CTYPE": "en_US.utf8"}, "✓ "),
            ({"LC_ALL": "", "LANG": "de_DE.UTF-8"}, "✓ "),
            ({"LC_ALL": "POSIX", "LANG": "de_DE.UTF-8"}, "[ok] "),
        ):
            last = in_pipe("apply", "--site", self.site, **variables).splitlines()[-1]
            self.assertTrue(last.startswith(mark), (variables, last))

    def test_a_diff_is_coloured_line_by_line(self):
        fresh = str(real.site("0.5.23", Path(self.scratch.name) / "fresh"))
        _, text = on_terminal("apply", "--dry-run", "--diff", "--site", fresh)
        self.assertIn("\x1b[36m@@ ", text)
        self.assertIn(f"{GREEN}+", text)
        self.assertEqual(SGR.sub("", text).count("\n+++ b/"), 2)

    def test_json_is_never_coloured(self):
        _, text = on_terminal("status", "--json", "--color=always", "--site", self.site)
        self.assertNotIn("\x1b", text)

    def test_a_refusal_is_red(self):
        drifted = real.site("0.5.23", Path(self.scratch.name) / "drifted")
        file = drifted / "sglang/srt/distributed/device_communicators/custom_all_reduce.py"
        file.write_bytes(b"#" + file.read_bytes())
        status, text = on_terminal("status", "--site", str(drifted))
        self.assertEqual(status, 4)
        self.assertIn(f"{RED}drifted\x1b[0m", text)
        self.assertTrue(text.splitlines()[-1].startswith(f"{RED}✗\x1b[0m "))


if __name__ == "__main__":
    unittest.main()
