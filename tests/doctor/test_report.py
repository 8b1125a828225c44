"""doctor and report with an install: what they find in it, and that no name leaves in a report."""

import getpass
import hashlib
import importlib.util
import json
import os
import pwd
import py_compile
import re
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "patches"), str(HERE.parent / "cli")]

import real  # noqa: E402
import schema  # noqa: E402

CLI = real.CLI
VERSION = "0.5.23"


def run(*arguments, env=None):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("CUDA", "UV_", "XDG"))}
    done = subprocess.run([CLI, *arguments], env=environment | (env or {}), capture_output=True, text=True, check=False,
                          timeout=120)  # fmt: skip
    return done


def as_json(*arguments, env=None):
    done = run(*arguments, "--json", env=env)
    data = json.loads(done.stdout)
    schema.validate(data)
    return data


class Install(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        self.site = self.folder / "some-site[1]*?\\'s"  # a path, and neither a pattern nor a word of a shell
        real.site(VERSION, self.site)

    def doctor(self, *checks, code=0, env=None):
        data = as_json("doctor", *checks, "--site", str(self.site), env=env)
        self.assertEqual(data["exit_code"], code, data)
        return data["findings"]

    def no_install(self):
        """An environment whose only Python answers nothing."""
        python = self.folder / "Acme Secret Project" / "env" / "bin" / "python3"
        python.parent.mkdir(parents=True, exist_ok=True)
        python.write_text("#!/bin/sh\nexit 3\n")
        python.chmod(0o755)
        return {"VIRTUAL_ENV": str(python.parents[1]), "CONDA_PREFIX": "", "PATH": f"{python.parent}:/nonexistent"}

    def patch(self):
        self.assertEqual(run("apply", "--site", str(self.site)).returncode, 0)
        files = as_json("status", "--site", str(self.site))["install"]["files"]
        return [self.site / file["path"] for file in files if file["state"] == "applied"]


class Doctor(Install):
    def test_a_fresh_install_is_clean(self):
        self.assertEqual(self.doctor("access", "plugins", "bytecode", "uv-cache", env={"HOME": str(self.folder)}), [])

    def test_unchecked_bytecode_of_a_patched_file(self):
        source = self.patch()[0]
        target = importlib.util.cache_from_source(str(source))
        py_compile.compile(str(source), cfile=target)
        self.assertEqual(self.doctor("bytecode"), [])  # by time and size: Python looks
        py_compile.compile(str(source), cfile=target, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
        self.assertEqual(self.doctor("bytecode"), [])
        py_compile.compile(str(source), cfile=target, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
        (finding,) = self.doctor("bytecode", code=1)
        self.assertEqual((finding["id"], finding["level"]), ("bytecode.unchecked", "fail"))
        subprocess.run(finding["remedy"], shell=True, check=True)  # the remedy is a command that works
        self.assertEqual(self.doctor("bytecode"), [])

    def test_side_files_whose_journal_is_gone(self):
        folder = self.patch()[0].parent
        self.assertEqual(self.doctor("leftovers"), [])
        for name in (".sgl-pcie-0123456789abcdef-0.new", ".sgl-pcie-0123456789abcdef-0.old"):
            (folder / name).write_text("x")
        (finding,) = self.doctor("leftovers")
        self.assertEqual((finding["id"], finding["level"]), ("leftovers.side-files", "warn"))
        self.assertIn("2 files", finding["text"])
        (self.site / ".sgl-pcie" / "journal.stage").write_text("{}")
        self.assertEqual(self.doctor("leftovers"), [])  # recover's business
        (self.site / ".sgl-pcie" / "journal.stage").unlink()
        subprocess.run(finding["remedy"], shell=True, check=True)
        self.assertEqual(self.doctor("leftovers"), [])
        (folder / ".sgl-pcie-0123456789abcdef-0.new").write_text("x")  # of one kind only
        (finding,) = self.doctor("leftovers")
        subprocess.run(finding["remedy"], shell=True, check=True)
        self.assertEqual(self.doctor("leftovers"), [])

    def test_a_pythonpath_with_another_sglang(self):
        """We ask the interpreter without it, so that status says of the install what holds for every shell."""
        other = self.folder / "other"
        (other / "sglang").mkdir(parents=True)
        for path, found in ((other, 1), (self.site, 0), (self.folder, 0), (f"{self.site}:{other}", 0), ("", 0)):
            findings = self.doctor("settings", env={"PYTHONPATH": str(path)})
            self.assertEqual([f["remedy"] for f in findings if f["id"] == "settings.pythonpath"], ["unset PYTHONPATH"] * found, path)

    def plugin(self, name, target, source):
        info = self.site / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "entry_points.txt").write_text(
            f"[console_scripts]\nx = y:z\n\n[sglang.srt.plugins]\n{name} = {target}\n\n[other]\nq = r:s\n"
        )
        if source is not None:
            path = self.site / (target.split(":")[0].replace(".", "/") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)

    def test_plugins_that_touch_what_the_patch_hooks(self):
        self.plugin("quiet", "quietpkg.mod:load", "def load(): pass\n")
        self.plugin("loud", "loudpkg.mod:load", "TARGET = 'sglang.srt...custom_all_reduce.CustomAllreduce'\n")
        self.plugin("gone", "gonepkg:load", None)
        found = {(finding["id"], finding["level"], finding["text"].split("'")[1]) for finding in self.doctor("plugins")}
        self.assertEqual(found, {("plugins.present", "info", "quiet"), ("plugins.replace", "warn", "loud"),
                                 ("plugins.present", "info", "gone")})  # fmt: skip

    def test_a_cache_of_uv_that_was_patched_through_a_hard_link(self):
        cache = self.folder / "cache[1]"
        entry = cache / "archive-v0" / "abc"
        real.site(VERSION, entry)
        self.assertEqual(self.doctor("uv-cache", env={"UV_CACHE_DIR": str(cache)}), [])
        for path in self.patch():
            inside = entry / path.relative_to(self.site)
            inside.write_bytes(path.read_bytes())
        found = self.doctor("uv-cache", env={"UV_CACHE_DIR": str(cache)})
        self.assertEqual({finding["id"] for finding in found}, {"uv-cache.contaminated"})
        self.assertTrue(all("is patched" in finding["text"] for finding in found))
        inside.write_bytes(b"edited by hand\n")
        texts = [finding["text"] for finding in self.doctor("uv-cache", env={"UV_CACHE_DIR": str(cache)})]
        self.assertTrue(any("is not as released" in text for text in texts))

    def test_an_install_that_cannot_be_written(self):
        os.chmod(self.site, 0o555)
        self.addCleanup(os.chmod, self.site, 0o755)
        done = subprocess.run([HERE.parent / "cli" / "bin" / "unprivileged", CLI, "doctor", "access", "--json", "--site",
                               str(self.site)], capture_output=True, text=True, check=False)  # fmt: skip
        (finding,) = json.loads(done.stdout)["findings"]
        self.assertEqual((done.returncode, finding["id"]), (0, "access.denied"))
        self.assertIn("owner of this environment", finding["remedy"])

    def test_an_externally_managed_python_is_said_and_not_obeyed(self):
        library = self.folder / "lib"
        library.mkdir()
        python = self.folder / "python3"
        python.write_text(f"""#!/bin/sh
            for code; do :; done
            exec {sys.executable} -IB -c 'import sys, sysconfig as s; sys.path.insert(0, sys.argv[2]); sys.base_prefix = sys.prefix
s.get_path = lambda name: sys.argv[3]
exec(sys.argv[1])' "$code" '{self.folder}/alias' '{library}'\n""")
        python.chmod(0o755)
        (self.folder / "alias").symlink_to(self.site)
        by_python = "doctor", "access", "--python", str(python)
        self.assertEqual((self.doctor("access"), as_json(*by_python)["findings"]), ([], []))
        (library / "EXTERNALLY-MANAGED").touch()
        (finding,) = as_json(*by_python)["findings"]
        self.assertEqual((finding["id"], finding["level"]), ("access.managed", "info"))
        (self.folder / "EXTERNALLY-MANAGED").touch()
        (finding,) = self.doctor("access")
        self.assertEqual(finding["id"], "access.managed")
        self.patch()

    def test_uuids_in_the_variable_are_to_be_mended_first(self):
        (finding,) = self.doctor("visible", code=1, env={"CUDA_VISIBLE_DEVICES": "GPU-1234abcd"})
        self.assertEqual(finding["id"], "visible.uuid")
        self.assertEqual(self.doctor("visible", env={"CUDA_VISIBLE_DEVICES": "0,1"}), [])

    def test_running_servers_are_read(self):
        script = self.folder / "sglang"
        script.write_text("import time\ntime.sleep(60)\n")
        server = subprocess.Popen([sys.executable, str(script), "serve", "--enable-symm-mem", "--cuda-graph-max-bs", "512"],
                                  env=os.environ | {"CUDA_VISIBLE_DEVICES": "GPU-1234abcd"})  # fmt: skip
        try:
            for _ in range(50):
                texts = [finding["text"] for finding in self.doctor("servers") if str(server.pid) in finding["text"]]
                if texts:
                    break
                time.sleep(0.1)
        finally:
            server.kill()
            server.wait()
        self.assertTrue(any("--enable-symm-mem" in text for text in texts), texts)
        self.assertTrue(any("batch 512" in text for text in texts), texts)
        self.assertTrue(any("UUIDs" in text for text in texts), texts)  # a warning: others' servers keep nobody from setup

    def test_lists_names_and_unknown_checks(self):
        every = as_json("doctor", "--list")["checks"]
        self.assertTrue(all(check["status"] is None for check in every))
        for check in every:
            (one,) = as_json("doctor", check["id"], "--site", str(self.site))["checks"]
            self.assertEqual(one["id"], check["id"])
        done = run("doctor", "servrs")
        self.assertEqual(done.returncode, 2)
        self.assertIn("did you mean 'servers'?", done.stderr)

    def test_without_an_install_the_rest_is_still_looked_at(self):
        data = as_json("doctor", env=self.no_install())
        status = {check["id"]: check["status"] for check in data["checks"]}
        self.assertEqual(status["bytecode"], "skipped")
        self.assertNotEqual(status["driver"], "skipped")

    def test_a_target_that_was_named_must_be_there(self):
        nothing = self.folder / "nothing"
        for command in ("doctor", "report"):
            for option, code in (("--site", 2), ("--source", 2), ("--python", 5)):
                data = as_json(command, option, str(nothing))
                self.assertEqual(data["exit_code"], code, data)
                self.assertIn(f"'{nothing}", data["message"])
                self.assertTrue(data["next"])
            self.assertEqual(as_json(command, "--site", str(self.folder))["exit_code"], 2)  # there, and no SGLang in it


class Report(Install):
    def names(self):
        host = socket.gethostname()
        person = pwd.getpwuid(os.getuid())
        every = {host, host.split(".")[0], getpass.getuser(), person.pw_name, person.pw_dir, str(self.folder), "some-site",
                 "alice", "node7", "/home/"}  # fmt: skip
        return {name for name in every if len(name) > 1 and name not in ("root", "/root", "/", "localhost")} | {"/root"}

    def report(self, env=None):
        path = self.folder / "out" / "report.json"
        path.parent.mkdir(exist_ok=True)
        done = run("report", "--site", str(self.site), "--out", str(path), env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        return path

    def test_no_name_of_a_host_a_user_or_a_path_leaves(self):
        self.patch()
        self.plugin_with_a_path()
        env = {"HOME": "/home/alice", "USER": "alice", "SUDO_USER": "alice", "HOSTNAME": "node7.lab.example",
               "SGLANG_FORCE_CUSTOM_AR_PCIE": "/home/alice/x on node7.lab.example by alice"}  # fmt: skip
        text = self.report(env=env).read_text()
        for name in self.names():  # as a word: a host may be called "vm"
            self.assertNotRegex(text, rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])")
        self.assertIn("SGLANG_FORCE_CUSTOM_AR_PCIE", text)  # the finding is there, its value is not
        self.assertIn(VERSION, text)

    def plugin_with_a_path(self):
        info = self.site / "p-1.0.dist-info"
        info.mkdir()
        (info / "entry_points.txt").write_text("[sglang.srt.plugins]\np = /home/alice/plugin.py:load\n")

    def test_an_error_names_no_path_either(self):
        done = run("report", env=self.no_install())
        self.assertEqual(done.returncode, 0, done.stderr)
        error = json.loads(done.stdout)["status_error"]
        self.assertIn("<path>", error)
        for word in (str(self.folder), "Acme", "Secret", "Project", "python3"):
            self.assertNotIn(word, error)

    def test_no_path_leaves_that_has_blanks(self):
        place = self.folder / "Acme Secret Project"
        self.site = place / "Zeta Site"
        real.site(VERSION, self.site)
        self.patch()
        key = hashlib.sha256(os.fsencode(os.path.realpath(self.site))).hexdigest()[:16]
        verdict = place / "Zeta State" / key / "verdict.json"
        verdict.parent.mkdir(parents=True)
        verdict.write_text("{")
        text = self.report(env={"SGL_PCIE_STATE": str(place / "Zeta State")}).read_text()
        self.assertIn("<path>: not JSON", text)
        for word in ("Acme", "Secret", "Project", "Zeta", key):
            self.assertNotIn(word, text)

    def test_it_is_an_object_of_its_own_schema_and_can_be_judged_again(self):
        path = self.report()
        data = as_json("report", "--site", str(self.site))
        bundle = json.loads(path.read_text())
        for part in (data["bundle"], bundle):
            self.assertEqual(part["schema"], "sgl-pcie-report/1")
            schema.validator("recording.json").validate(part["recording"])
        self.assertEqual(set(bundle["status"]["install"]), {"sglang", "kernel", "layout", "runtime", "files"})
        done = run("verify", "--level", "1", "--from", str(path.parent))
        self.assertIn(done.returncode, (0, 1, 5))
        self.assertNotIn("not valid", done.stderr)

    def test_a_user_who_is_called_as_a_word_of_ours(self):
        """It could not be read again: 'wheel' is a layout, and 'sglang' a patch set."""
        whose = self.report(env={"USER": "alice"}).read_text()
        for word in ("wheel", "sglang", "unset", "absent", "unknown", "pristine"):
            path = self.report(env={"USER": word})
            bundle = json.loads(path.read_text())
            self.assertEqual(bundle["status"]["install"]["files"][0]["set"], "sglang")
            self.assertEqual(run("report", "--from", str(path), "--out", str(path) + ".html").returncode, 0, word)
        self.assertIn('"layout": "wheel"', whose)

    def test_standard_output_is_the_bundle_alone(self):
        done = run("report", "--site", str(self.site))
        self.assertEqual(json.loads(done.stdout)["schema"], "sgl-pcie-report/1")
        self.assertEqual(run("report", "--out", "/nonexistent/x").returncode, 5)

    def test_uuids_are_numbered(self):
        driver = os.environ["FAKE_DRIVER"]
        text = self.report(env={"LD_LIBRARY_PATH": driver, "FAKE_GPUS": "3", "FAKE_BUSY": "5"}).read_text()
        self.assertNotIn("444455556666", text)
        uuids = [gpu["uuid"] for gpu in json.loads(text)["recording"]["gpus"]]
        self.assertEqual(uuids, [f"GPU-00000000-0000-0000-0000-{number:012}" for number in range(3)])


if __name__ == "__main__":
    unittest.main()
