"""The manual page and the completion as their readers see them."""

import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "patches")]

import real  # noqa: E402


def generate(what):
    return subprocess.run([real.CLI, f"--generate={what}"], capture_output=True, text=True, check=True).stdout


def complete(*words):
    """What bash offers for the last of the words."""
    script = generate("bash") + '\nCOMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); compopt() { :; }\n_sgl_pcie\n'
    script += 'printf "%s\\n" "${COMPREPLY[@]}"\n'
    done = subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True, check=True)
    return done.stdout.split()


class Man(unittest.TestCase):
    def setUp(self):
        self.page = tempfile.NamedTemporaryFile("w", suffix=".1")
        self.addCleanup(self.page.close)
        self.page.write(generate("man"))
        self.page.flush()

    def test_it_has_no_warnings(self):
        if not shutil.which("man"):
            self.skipTest("no man")
        environment = dict(os.environ, LC_ALL="C.UTF-8", MANWIDTH="80", MANROFFSEQ="")
        done = subprocess.run(
            ["man", "--warnings", "-l", self.page.name], env=environment, capture_output=True, text=True, check=True
        )
        self.assertEqual(done.stderr, "")
        text = re.sub(r".\x08", "", done.stdout)
        for word in ("NAME", "SYNOPSIS", "EXIT STATUS", "ENVIRONMENT", "--while-running", "sgl-pcie apply"):
            self.assertIn(word, text)

    def test_it_has_every_variable_of_ours_that_is_read(self):
        page = generate("man").replace("\\-", "-")
        for folder in (*USES, "python/sgl_pcie"):
            for file in (real.ROOT / folder).glob("*.*"):
                for name in re.findall(r'"(SGL(?:ANG)?_(?:PCIE|FORCE)_[A-Z_]+)"', file.read_text()):
                    if name != "SGL_PCIE_BY_SETUP":  # from setup to apply
                        self.assertTrue('.B "%s"' % name in page, name)

    def test_the_build_made_the_same_page(self):
        share = Path(real.CLI).resolve().parent.parent / "share"
        self.assertEqual((share / "man/man1/sgl-pcie.1").read_text(), generate("man"))
        self.assertEqual((share / "bash-completion/completions/sgl-pcie").read_text(), generate("bash"))


# Folders above it, or files, that a folder may include besides its own.
USES = {
    "base": (),
    "patcher": ("base/",),
    "build": ("base/", "patcher/", "verify/machine/nvml.h", "verify/verdict/merge.h"),
    "verify/machine": ("base/",),
    "verify/verdict": ("base/", "verify/machine/"),
    "verify/ladder": ("base/", "verify/machine/", "verify/verdict/"),
    "verify/bench": ("base/", "verify/machine/", "verify/verdict/", "verify/ladder/"),
    "verify/page": ("base/", "verify/machine/", "verify/verdict/", "verify/bench/"),
    "verify/doctor": ("base/", "patcher/", "build/toolchain.h", "verify/machine/"),
    "cli": ("base/", "patcher/", "build/", "verify/"),
}


class Architecture(unittest.TestCase):
    """docs/architecture.md knows every folder, and every file of those that it takes apart."""

    TEXT = (real.ROOT / "docs" / "architecture.md").read_text()

    def test_every_folder(self):
        for place in ("", "kernels", "verify", "tests"):
            for folder in (real.ROOT / place).iterdir():
                if folder.is_dir() and not folder.name.startswith((".", "_", "out")):
                    name = folder.name if place == "tests" else str(folder.relative_to(real.ROOT))
                    self.assertRegex(self.TEXT, "`%s[/`]" % re.escape(name))

    def test_every_file(self):
        rows = re.findall(r"^\| (`[a-z/_]+/`)? ?\| (`.+`) \|.*\|$", self.TEXT, re.M)
        names, folder = {}, None
        for where, files in rows:
            folder = where.strip("`") or folder
            names.setdefault(folder, []).extend(re.findall(r"`([^`]+)`", files))
        self.assertEqual(set(names), {*(f"{folder}/" for folder in USES), "kernels/", "python/sgl_pcie/"})
        for folder, patterns in names.items():
            files = {file.stem for file in (real.ROOT / folder).iterdir() if file.suffix in (".c", ".h", ".cu", ".py")}
            for name in files:
                matching = [pattern for pattern in patterns if fnmatch.fnmatchcase(name, pattern)]
                self.assertEqual(len(matching), 1, "%s%s: %s" % (folder, name, matching))
            for pattern in patterns:
                self.assertTrue(fnmatch.filter(files, pattern), "there is no %s%s" % (folder, pattern))

    def test_who_uses_whom(self):
        above = []
        for folder, others in USES.items():
            for other in others:
                self.assertTrue(other.endswith(".h") or any(f"{known}/".startswith(other) for known in above), other)
            above.append(folder)
            for file in (real.ROOT / folder).glob("*.[ch]"):
                for used in re.findall(r'^#include "(\w+/.+)"$', file.read_text(), re.M):
                    self.assertTrue(used.startswith((folder + "/", *others)), f"{file}: {used}")

    def test_every_script(self):
        for script in (real.ROOT / "scripts").iterdir():
            if script.is_file():
                self.assertRegex(self.TEXT, r"(?m)^\| `.*\b%s`.* \|" % re.escape(script.name))


class Contributing(unittest.TestCase):
    def test_the_library_is_of_this_release(self):
        version = subprocess.run([real.CLI, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
        names = (real.ROOT / "kernels" / "names.c").read_text()
        self.assertEqual(re.findall(r'#define PAR_VERSION "(.+)"', names), [version])

    def test_every_option_of_the_build(self):
        text = (real.ROOT / "CONTRIBUTING.md").read_text()
        files = [real.ROOT / "CMakeLists.txt"]
        for place in ("kernels", "tests"):
            files += (real.ROOT / place).rglob("CMakeLists.txt")
        for file in files:
            for name in re.findall(r"^\s*(?:option\((\w+) |set\((\w+) \S+ CACHE)", file.read_text(), re.M):
                self.assertIn("`%s`" % "".join(name), text)


class MemoryModel(unittest.TestCase):
    def test_every_control_is_of_a_rule_or_an_assumption(self):
        text = (real.ROOT / "docs" / "memory-model.md").read_text()
        for control in (real.ROOT / "tests" / "emulator" / "controls").glob("*.control"):
            self.assertRegex(text, r"(?<![\w-])%s(?![\w-])" % re.escape(control.stem))


class Scripts(unittest.TestCase):
    def test_without_the_words_that_it_needs_a_script_says_which(self):
        needy = {"gpu-check.sh": (), "setup-check.sh": (), "same-choices.py": (), "check-upstream.sh": ("-a",)}
        needy.update({"patch-release.py": (), "patch-kernel.py": (), "install-deps.sh": ("--tset",), "demo.sh": ("-x",)})
        for name, words in needy.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as elsewhere:
                command = [str(real.ROOT / "scripts" / name), *words]
                done = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, check=False)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertRegex(done.stderr, rf"(scripts/|usage: ){re.escape(name)} .+")


class Findings(unittest.TestCase):
    """Whoever meets the id of a finding finds it in a table, and there is none there that nothing gives."""

    def test_every_id_is_listed(self):
        verify = real.ROOT / "verify"
        listed = [
            id_
            for header in ("machine/findings.h", "doctor/doctor.h")
            for id_ in re.findall(r"^ \* \| ([a-z0-9-]+\.[a-z0-9-]+) ", (verify / header).read_text(), re.M)
        ]
        self.assertEqual(len(listed), len(set(listed)))
        given = set()
        for file in [*verify.glob("machine/find*.c"), *verify.glob("doctor/exam*.c")]:
            given.update(re.findall(r'"([a-z0-9-]+\.[a-z][a-z0-9-]+)"', file.read_text()))
        self.assertEqual(given, set(listed))


class Completion(unittest.TestCase):
    def test_shellcheck_has_nothing_to_say(self):
        if not shutil.which("shellcheck"):
            self.skipTest("no shellcheck")
        done = subprocess.run(
            ["shellcheck", "-s", "bash", "-"], input=generate("bash"), capture_output=True, text=True, check=False
        )
        self.assertEqual(done.stdout, "")

    def test_commands_options_and_values(self):
        self.assertEqual(complete("sgl-pcie", "re"), ["revert", "recover", "report"])
        self.assertIn("--while-running", complete("sgl-pcie", "apply", "--"))
        self.assertNotIn("--while-running", complete("sgl-pcie", "status", "--"))
        self.assertNotIn("--site", complete("sgl-pcie", "list", "--"))
        self.assertIn("--site", complete("sgl-pcie", "--s"))
        self.assertNotIn("--generate", complete("sgl-pcie", "--"))
        self.assertEqual(complete("sgl-pcie", "status", "--color", ""), ["auto", "always", "never"])
        self.assertEqual(complete("sgl-pcie", "status", "--color", "=", "al"), ["always"])
        self.assertEqual(complete("sgl-pcie", "--site", str(HERE.parent / "cl")), [str(HERE)])
        self.assertEqual(complete("sgl-pcie", "apply", "--set", ""), [])


class Cases(unittest.TestCase):
    """The golden cases against the table: an exit status that a command gives is in its help."""

    def test_every_exit_status_seen_is_documented(self):
        for case in (HERE / "cases").glob("*.case"):
            for command, status in re.findall(r"(?m)^\$ sgl-pcie (\w+)(?: [^|;&\n]*)?\n(?:[|!].*\n)*= (\d+)$", case.read_text()):
                help_text = subprocess.run([real.CLI, command, "--help"], capture_output=True, text=True, check=False)
                if help_text.returncode == 0:  # else it is a command that does not exist
                    self.assertRegex(help_text.stdout, rf"(?m)^  {status} ", f"{case.name}: {command}")


if __name__ == "__main__":
    unittest.main()
