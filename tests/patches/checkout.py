"""The set sgl-kernel in a git checkout: patched when it is named, taken back byte for byte, git's index left alone."""

import fcntl
import os
import shlex
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import real
import source

ONE = ("--set", "sgl-kernel")
BOTH = ("--set", "sglang", *ONE)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()
        self.data = source.data(self.folder / "data")
        self.post = source.real.json.loads((source.PATCHES / "manifest.json").read_text())["sets"]["sgl-kernel"]
        self.post = self.post["texts"][0]["post"]

    def make(self, path=source.OLD, repository=True):
        self.path = path
        self.checkout = source.make(self.folder / "checkout", path, repository)
        self.file = self.checkout / path
        return self.checkout

    def tool(self, command, *args, want=0, target=None):
        """The JSON object."""
        code, answer = real.ask(command, "--source", target or self.checkout, *args, data=self.data)
        self.assertEqual(code, want, answer)
        return answer

    def states(self, **more):
        """{set: states of its files} as status has it."""
        result = {}
        for file in self.tool("status", **more)["install"]["files"]:
            result.setdefault(file["set"], set()).add(file["state"])
        return result

    def everything(self):
        """What is in the checkout, git's folder with it; times of git's index too."""
        index = self.checkout / ".git" / "index"
        return real.snapshot(self.checkout), index.exists() and index.stat().st_mtime_ns

    def blob(self):
        return real.blob_id(self.file.read_bytes())


class Applied(Case):
    def test_there_and_back_in_both_layouts(self):
        for number, path in enumerate((source.OLD, source.NEW)):
            with self.subTest(path):
                self.path, self.file = path, self.folder / str(number) / path
                self.checkout = source.make(self.folder / str(number), path)
                before = self.everything()
                self.assertEqual(self.states(), {"sgl-kernel": {"pristine"}, "sglang": {"pristine"}})
                self.tool("apply", *ONE, "--dry-run")
                self.assertEqual(self.everything(), before)
                changes = self.tool("apply", *ONE)["changes"]
                self.assertEqual(
                    [(c["path"], c["action"], c["from"], c["to"]) for c in changes],
                    [(path, "patch", source.PRE, self.post)],
                )
                self.assertEqual(self.blob(), self.post)
                after = self.everything()
                self.assertEqual(real.differences(after[0], before[0]), {path}, "more than the text has changed")
                self.assertEqual(after[1], before[1], "git's index was written")
                self.assertEqual(source.git(self.checkout, "status", "--porcelain"), " M %s\n" % path)
                self.assertEqual(self.states(), {"sgl-kernel": {"applied"}, "sglang": {"pristine"}})
                self.assertEqual(self.tool("apply", *ONE)["changes"], [])
                self.tool("revert")
                self.assertEqual(self.everything(), before)

    def test_the_text_alone_brings_no_runtime(self):
        self.make()
        self.tool("apply", *ONE)
        self.assertEqual(self.tool("status")["install"]["runtime"], "absent")

    def test_both_sets_at_once(self):
        before = real.snapshot(self.make())
        self.tool("apply", *BOTH)
        self.assertEqual(self.states(), {"sgl-kernel": {"applied"}, "sglang": {"applied"}})
        self.assertTrue((self.checkout / "python" / "sgl_pcie" / "__init__.py").exists())
        self.assertFalse((self.checkout / ".sgl-pcie").exists())
        self.tool("revert")
        self.assertEqual(real.snapshot(self.checkout), before)

    def test_one_set_leaves_the_other(self):
        before = real.snapshot(self.make())
        self.tool("apply")
        self.assertEqual(self.states(), {"sgl-kernel": {"pristine"}, "sglang": {"applied"}}, "it was not named")
        installed = (self.checkout / "python" / ".sgl-pcie" / "install.json").read_text()
        self.assertNotIn("sgl-kernel", installed)
        patched = real.snapshot(self.checkout)
        self.tool("apply", *ONE)
        self.tool("revert", *ONE)
        self.assertEqual(real.snapshot(self.checkout), patched)
        self.tool("apply", *ONE)
        self.tool("revert", "--set", "sglang")
        self.assertEqual(real.differences(real.snapshot(self.checkout), before), {self.path})
        self.tool("revert")
        self.assertEqual(real.snapshot(self.checkout), before)

    def test_by_the_folder_of_the_package(self):
        before = self.make() and self.everything()
        self.tool("apply", *ONE, target=self.checkout / "python")
        self.assertEqual(self.blob(), self.post)
        self.tool("revert", target=self.checkout / "python")
        self.assertEqual(self.everything(), before)

    def test_without_git_bytes_decide(self):
        before = real.snapshot(self.make(repository=False))
        self.tool("apply", *ONE)
        self.assertEqual(self.blob(), self.post)
        self.tool("revert")
        self.assertEqual(real.snapshot(self.checkout), before)

    def test_a_committed_patch_comes_out_as_well(self):
        self.make()
        self.tool("apply", *ONE)
        source.commit(self.checkout)
        self.assertEqual(self.states()["sgl-kernel"], {"applied"})
        self.tool("revert")
        self.assertEqual(self.blob(), source.PRE)
        self.tool("apply", *ONE)
        self.assertEqual(self.blob(), self.post)

    def test_a_staged_patch_comes_out_as_well(self):
        self.make()
        self.tool("apply", *ONE)
        source.git(self.checkout, "add", self.path)
        staged = self.everything()[1]
        self.tool("revert")
        self.assertEqual((self.blob(), self.everything()[1]), (source.PRE, staged))

    def test_git_formats(self):
        """What people have beside a plain clone. Where libgit2 cannot read it, bytes decide alone."""
        main = self.make()
        source.git(main, "config", "uploadpack.allowFilter", "true")
        clone = ("clone", "-q", "file://%s" % main)
        for name, want, *commands in (
            ("shallow", "drifted", (*clone, "--depth", "1")),
            ("partial", "drifted", (*clone, "--filter=blob:none")),
            ("linked", "drifted", ("worktree", "add", "-q", "--detach")),
            ("sparse", "drifted", clone, ("sparse-checkout", "set", "--cone", "--sparse-index", "sgl-kernel", "python")),
            ("split", "drifted", clone, ("update-index", "--split-index")),
            ("version 4", "drifted", clone, ("update-index", "--index-version", "4")),
            ("no commit", "unknown", ("init", "-q"), ("fetch", "-q", str(main)), ("read-tree", "FETCH_HEAD")),
            ("sha256", "unknown", ("init", "-q", "--object-format=sha256")),
        ):
            with self.subTest(name):
                self.checkout = self.folder / name
                self.file = self.checkout / self.path
                source.git(main, *commands[0], str(self.checkout))
                for command in commands[1:]:
                    source.git(self.checkout, *command)
                if not self.file.exists():
                    source.make(self.checkout, repository=False)
                before = self.everything()
                self.tool("apply", *BOTH)
                self.assertEqual((self.blob(), self.everything()[1]), (self.post, before[1]))
                self.tool("revert")
                self.assertEqual(self.everything(), before)
                self.file.write_bytes(source.text() + b"// mine\n")
                self.assertEqual(self.states()["sgl-kernel"], {want})

    def test_a_submodule(self):
        """Its own repository is asked, not the one around it."""
        around = self.folder / "around"
        around.mkdir()
        source.git(around, "init", "-q")
        source.git(around, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(self.make()), "sglang")
        self.checkout = around / "sglang"
        self.file = self.checkout / self.path
        self.tool("apply", *ONE)
        self.assertEqual(source.git(self.checkout, "status", "--porcelain"), " M %s\n" % self.path)
        self.tool("revert")
        self.file.write_bytes(source.text() + b"// mine\n")
        self.assertEqual(self.states()["sgl-kernel"], {"drifted"})

    @unittest.skipUnless(os.geteuid() == 0, "only root can give a checkout to somebody else")
    def test_a_checkout_of_another_user(self):
        before = self.make() and real.snapshot(self.checkout)
        for file in (self.checkout, *self.checkout.rglob("*")):
            os.chown(file, 12345, 12345)
        self.tool("apply", *ONE)
        self.assertEqual((self.file.stat().st_uid, self.file.stat().st_gid), (12345, 12345))
        self.tool("revert")
        self.assertEqual(real.snapshot(self.checkout), before)


class Raced(Case):
    def waiting(self, process):
        """Has it come to the lock of the folder of the package? It holds that folder twice before."""
        fds = Path("/proc/%d/fd" % process.pid)
        return sum(os.path.realpath(fd) == str(self.checkout / "python") for fd in fds.iterdir()) == 3

    def test_a_winner_that_was_killed_in_the_checkout(self):
        """Its journal lies where the loser, which writes below python/ only, has no lock."""
        lock = os.open(self.make() / "python", os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [real.CLI, "apply", "--source", str(self.checkout)]
        env = dict(os.environ, SGL_PCIE_DATA=str(self.data))
        with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as loser:
            while not self.waiting(loser) and loser.poll() is None:
                time.sleep(0.01)
            (self.checkout / ".sgl-pcie").mkdir()
            (self.checkout / ".sgl-pcie" / "journal.commit").write_text("torn\n")
            before = self.everything()
            os.close(lock)
            said = loser.communicate()[1]
        self.assertEqual(loser.returncode, 10, said)
        self.assertIn("recover --source", said)
        self.assertEqual(self.everything(), before)

    def test_the_package_alone_needs_nothing_of_the_checkout(self):
        """What apply wrote below python/, revert takes back there, where no folder above can be written."""
        before = real.snapshot(self.make())
        self.tool("apply")
        self.checkout.chmod(0o555)
        self.addCleanup(self.checkout.chmod, 0o755)
        user = {"user": 12345, "group": 12345} if os.geteuid() == 0 else {}
        if user:
            for file in (self.checkout, *self.checkout.rglob("*")):
                os.chown(file, 12345, 12345, follow_symlinks=False)
            self.folder.chmod(0o755)
        command = [real.CLI, "revert", "--source", str(self.checkout)]
        env = dict(os.environ, SGL_PCIE_DATA=str(self.data))
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, **user)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.checkout.chmod(0o755)
        self.assertEqual(real.snapshot(self.checkout), before)


class Refused(Case):
    def refuse(self, want, state, *said, command="apply"):
        """The command writes nothing, shows the file in a table, and says why."""
        before = self.everything()
        answer = self.tool(command, *ONE, want=want)
        code, out, err = real.run(command, "--source", self.checkout, *ONE, data=self.data)
        self.assertEqual(code, want)
        self.assertEqual(self.everything(), before)
        for part in (self.path, *said):
            self.assertIn(part, answer["message"] + (answer["next"] or ""))
        files = [file for file in answer["install"]["files"] if file["set"] == "sgl-kernel"]
        self.assertEqual([file["state"] for file in files], [state])
        if command == "apply":
            self.assertRegex(out, r"(?m)^%s +sgl-kernel +%s " % (self.path, state))
        return err

    def test_a_change_of_the_users(self):
        self.make()
        self.file.write_bytes(source.text().replace(b"512 * 1024", b"128 * 1024"))
        self.refuse(4, "drifted", "git -C", "restore", "HEAD has")
        source.git(self.checkout, "add", "-A")
        self.refuse(4, "drifted", "git -C", "restore", "HEAD has")
        self.file.write_bytes(source.text())
        self.refuse(4, "drifted", "has a staged change")

    def test_the_hint_mends_it(self):
        self.make()
        for staged in (False, True):
            self.file.write_bytes(source.text() + b"// mine\n")
            if staged:
                source.git(self.checkout, "add", "-A")
            hint = self.tool("apply", *ONE, want=4)["next"].split(", ")[0]
            self.assertEqual(subprocess.run(hint, shell=True, check=False).returncode, 0)
            self.tool("apply", *ONE)
            self.tool("revert")

    def test_line_endings_that_git_converted(self):
        """Whatever converts them: the command that is named ends it, and leaves nothing for git to see."""
        for setting in ("core.autocrlf", "core.eol", ".gitattributes"):
            with self.subTest(setting):
                self.checkout = self.folder / setting
                self.path, self.file = source.OLD, self.checkout / source.OLD
                source.make(self.checkout)
                if setting != "core.autocrlf":
                    rule = "* text eol=crlf" if setting == ".gitattributes" else "* text=auto"
                    (self.checkout / ".gitattributes").write_text(rule + "\n")
                    source.commit(self.checkout)
                if setting != ".gitattributes":
                    source.git(self.checkout, "config", setting, "true" if setting == "core.autocrlf" else "crlf")
                python = self.checkout / "python" / real.TOOL.CAR
                source.git(self.checkout, "rm", "-q", "-r", "--cached", ".")
                source.git(self.checkout, "reset", "-q", "--hard")
                self.assertIn(b"\r\n", self.file.read_bytes())
                self.assertEqual(source.git(self.checkout, "status", "--porcelain"), "")
                self.refuse(4, "drifted", "line endings", "sed -i")
                for _ in ("sglang", "sgl-kernel"):
                    hint = self.tool("apply", *BOTH, want=4)["next"]
                    self.assertEqual(subprocess.run(hint, shell=True, capture_output=True, check=False).returncode, 0)
                    self.assertEqual(source.git(self.checkout, "status", "--porcelain"), "")
                self.tool("apply", *BOTH)
                self.assertNotIn(b"\r", python.read_bytes())
                self.tool("revert")
                self.assertEqual(self.blob(), source.PRE)
                self.assertEqual(source.git(self.checkout, "status", "--porcelain"), "")

    def test_a_change_of_the_users_in_converted_lines(self):
        self.make()
        self.file.write_bytes(source.text().replace(b"\n", b"\r\n") + b"// mine\r\n")
        self.refuse(4, "drifted", "git -C", "restore", "HEAD has")

    def test_a_known_text_over_another_one(self):
        self.make()
        self.file.write_bytes(source.text() + b"// of another release\n")
        source.commit(self.checkout)
        self.refuse(3, "unknown", "no release that we know")
        self.file.write_bytes(source.text())
        self.refuse(4, "drifted", "is not what HEAD has")

    def test_removed(self):
        self.make()
        self.file.unlink()
        self.refuse(4, "missing", "restore")

    def test_a_link_in_place_of_the_file(self):
        self.make()
        self.file.rename(self.folder / "elsewhere")
        self.file.symlink_to(self.folder / "elsewhere")
        answer = self.tool("apply", *ONE, want=5)
        self.assertIn("symbolic link", answer["message"])
        self.assertIn("a checkout: git checkout", answer["next"])

    def test_what_is_no_file_in_place_of_the_file(self):
        self.make()
        self.file.rename(self.folder / "elsewhere")
        for make in (self.file.mkdir, lambda: os.mkfifo(self.file)):
            make()
            answer = self.tool("apply", *ONE, want=5)
            self.assertIn("not a regular file", answer["message"])
            self.assertIn("move it away", answer["next"])
            self.assertIn("a checkout: git checkout", answer["next"])
            (self.file.rmdir if self.file.is_dir() else self.file.unlink)()

    def test_a_patched_file_that_a_move_left_behind(self):
        """Nobody installed a checkout, so that there is nothing to reinstall: what is named mends it."""
        self.make()
        self.tool("apply", *ONE)
        new = self.checkout / source.NEW
        new.parent.mkdir(parents=True)
        new.write_bytes(source.text())
        source.git(self.checkout, "rm", "-q", "--cached", source.OLD)
        source.git(self.checkout, "add", source.NEW)
        source.git(self.checkout, "commit", "-q", "-m", "moved")
        answer = self.tool("apply", *ONE, want=4)
        self.assertIn("carries the patch of another release", answer["message"])
        self.assertEqual(answer["next"], "sgl-pcie revert --source '%s'" % self.checkout)
        words = shlex.split(answer["next"])
        env = dict(os.environ, SGL_PCIE_DATA=str(self.data))
        self.assertEqual(subprocess.run([real.CLI, *words[1:]], env=env, capture_output=True, check=False).returncode, 0)
        self.tool("apply", *ONE)
        self.assertEqual((self.blob(), real.blob_id(new.read_bytes())), (source.PRE, self.post))

    def test_a_file_that_git_does_not_know_yet(self):
        self.make()
        source.git(self.checkout, "rm", "-q", "--cached", self.path)
        self.refuse(4, "drifted", "has a staged change")
        source.git(self.checkout, "commit", "-q", "-m", "x")
        self.tool("apply", *ONE)
        self.tool("revert")
        source.git(self.checkout, "add", self.path)
        self.file.write_bytes(source.text() + b"\n")
        self.refuse(3, "unknown", "no release that we know")

    def test_in_the_middle_of_a_merge(self):
        self.make()
        for branch, line in (("one", b"// one\n"), ("two", b"// two\n")):
            source.git(self.checkout, "checkout", "-q", "-B", branch, "HEAD" if branch == "one" else "one~1")
            self.file.write_bytes(source.text() + line)
            source.commit(self.checkout)
        with self.assertRaises(subprocess.CalledProcessError):
            source.git(self.checkout, "merge", "-q", "one")
        self.refuse(3, "unknown")
        source.git(self.checkout, "checkout", "-q", "one~1", "--force")

    def test_unknown_without_git(self):
        self.make(repository=False)
        self.file.write_bytes(source.text() + b"\n")
        self.refuse(3, "unknown", "no release that we know", real.blob_id(source.text() + b"\n"))

    def test_changed_after_it_was_patched(self):
        self.make()
        self.tool("apply", *ONE)
        self.file.write_bytes(self.file.read_bytes() + b"// mine\n")
        self.refuse(4, "drifted", "was changed after it was patched", command="revert")

    def test_the_other_set_is_none_the_worse(self):
        """Whatever is wrong with a text that was not asked for."""
        self.make()
        self.file.write_bytes(b"unknown\n")
        source.commit(self.checkout)
        self.tool("apply")
        self.assertEqual(self.states(), {"sgl-kernel": {"unknown"}, "sglang": {"applied"}})
        self.assertIn("not built", self.tool("status")["message"])
        self.tool("apply", *BOTH, want=3)
        self.tool("revert")

    def test_a_change_of_the_users_in_the_other_set(self):
        self.make()
        python = self.checkout / "python" / real.TOOL.CAR
        python.write_text(python.read_text() + "# mine\n")
        self.tool("apply", want=4)
        before = self.everything()
        self.assertIn("restore", self.tool("apply", *BOTH, want=4)["next"])
        self.assertEqual(self.everything(), before, "one set was patched without the other")

    def test_no_checkout(self):
        self.make()
        self.file.unlink()
        source.commit(self.checkout)
        self.assertIn("has none of its files", self.tool("apply", *ONE, want=3)["message"])
        site = real.site(real.NEWEST, self.folder / "site")
        code, answer = real.ask("apply", "--site", site, *ONE, data=self.data)
        self.assertEqual((code, answer["next"]), (2, "name the checkout itself: --source DIR"))


if __name__ == "__main__":
    unittest.main()
