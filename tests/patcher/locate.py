"""How an install is found and who is in its way: interpreters as people set them up, and command lines as they write them.

    locate.py SGL_PCIE     path of the program
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import wheels

PROGRAM = None
VERSION = "0.5.23"
SYSTEM = os.path.realpath(sys.executable)


def tool(*words, env=None, cwd=None, want=0, **kwargs):
    """Run the program; its JSON object, with the exit status checked."""
    done = subprocess.run([PROGRAM, *map(str, words), "--json"], capture_output=True, text=True, cwd=cwd,
                          env={**os.environ, **(env or {})}, check=False, **kwargs)
    if done.returncode != want:
        raise AssertionError(f"{words}: exit {done.returncode}, expected {want}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


class Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name).resolve()

    def venv(self, *options, name="venv"):
        """An environment without SGLang; its interpreter and its site-packages."""
        folder = self.scratch / name
        subprocess.run([SYSTEM, "-m", "venv", "--without-pip", *options, folder], check=True)
        (site,) = folder.glob("lib/python*/site-packages")
        return folder / "bin/python3", site


class Servers(Case):
    def setUp(self):
        super().setUp()
        self.python, self.site = self.venv()
        wheels.unpack(VERSION, self.site)
        (self.site / "sglang/__init__.py").write_text("")
        for name in ("launch_server", "__main__"):
            (self.site / f"sglang/{name}.py").write_text("import time\nprint(flush=True)\ntime.sleep(600)\n")
        self.script = self.python.parent / "sglang"
        self.script.write_text(f"#!{self.python}\nimport sglang.launch_server\n")
        self.script.chmod(0o755)

    def running(self, *words, **kwargs):
        """Start it and wait for its first line."""
        process = subprocess.Popen(list(map(str, words)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, **kwargs)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        process.stdout.readline()
        return process

    def round_trip(self):
        tool("apply", "--python", self.python)
        tool("revert", "--python", self.python)

    def test_a_shell_that_patches_and_then_serves(self):
        """How a container starts; the shell must not be taken for the server that it will start."""
        for command in (f"{PROGRAM} apply -q --python {self.python} && : {self.python} -m sglang.launch_server",
                        f"true; {PROGRAM} revert -q --python {self.python} && : {self.script} serve"):
            done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_starter_named_like_a_server(self):
        """It is our ancestor: it waits for us, and starts the server afterwards."""
        (self.site / "sglang/launch_server.py").write_text(
            f"import subprocess\nraise SystemExit(subprocess.run([{PROGRAM!r}, 'apply', '-q', '--python', {str(self.python)!r}]).returncode)\n")
        done = subprocess.run([self.python, "-m", "sglang.launch_server"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_programs_that_only_name_sglang(self):
        """Stand-ins under the names of an editor, a grep, a shell and a script of ours: none of them has SGLang loaded."""
        wait = "echo; read -r _"
        for words in (["vim", "-c", wait, self.script], ["grep", "-c", wait, "-m", "sglang", f"{self.site}/log"],
                      ["bash", "-c", f"{wait}; : {self.python} -m sglang.launch_server", self.site]):
            self.running(*words, executable="/bin/bash")
        self.running(self.python, "-c", "print(flush=True); input()", "-m sglang.launch_server")
        self.running(self.python, "-c", "print(flush=True); input()", "-m", "sglang_router.x")
        self.round_trip()

    def test_an_environment_beside_ours_below_lib(self):
        """"/lib/python" in the path of the environment itself: a server of its neighbour is no server of ours."""
        shelf = "shelf/lib/python-envs"
        python, site = self.venv(name=f"{shelf}/a")
        other, neighbour = self.venv(name=f"{shelf}/b")
        for folder in (site, neighbour):
            wheels.unpack(VERSION, folder)
        (neighbour / "sglang/__init__.py").write_text("")
        (neighbour / "sglang/launch_server.py").write_text("print(flush=True)\ninput()\n")
        self.running(other, "-m", "sglang.launch_server")
        tool("apply", "--python", python)

    def test_servers_block(self):
        for words in ([self.python, "-m", "sglang.launch_server"], [self.python, "-u", "-X", "dev", "-m", "sglang", "serve"],
                      [self.python, "-msglang.launch_server"], [self.python, "-Bum", "sglang.launch_server"],
                      [self.script, "serve"], [self.python, self.script, "serve"]):
            process = self.running(*words)
            answer = tool("apply", "--python", self.python, want=5)
            self.assertIn(f"pid {process.pid} ", answer["message"], words)
            process.kill()
            process.wait()
        self.round_trip()


class Interpreters(Case):
    """What `python -m sglang.launch_server` would import is what is found, wherever `site` takes it from."""

    def setUp(self):
        super().setUp()
        self.env = {"PYTHONUSERBASE": str(self.scratch / "base"), "PYTHONNOUSERSITE": "", "PYTHONPATH": ""}
        self.user = pathlib.Path(self.ask(SYSTEM, "import site; print(site.getusersitepackages())"))
        self.user.mkdir(parents=True)

    def ask(self, python, code):
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, cwd="/", env={**os.environ, **self.env})
        return done.stdout.strip()

    def checkout(self):
        folder = self.scratch / "checkout/python"
        folder.mkdir(parents=True)
        wheels.unpack(VERSION, folder)
        for info in folder.glob("*.dist-info"):
            shutil.rmtree(info)
        return folder

    def editable(self, site, root):
        """What `pip install -e` leaves, in its simple form."""
        info = site / f"sglang-{VERSION}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {VERSION}\n")
        (site / "__editable__.sglang.pth").write_text(f"{root}\n")

    def found(self, python, **env):
        return tool("status", "--python", python, env={**self.env, **env}, cwd=self.scratch)["install"]

    def test_a_path_file_in_the_user_site(self):
        root = self.checkout()
        (self.user / "sglang.pth").write_text(f"{root}\n")
        self.assertEqual(self.found(SYSTEM)["root"], str(root))

    def test_an_editable_install_by_the_user(self):
        """The runtime goes beside the metadata: the interpreter's own folder belongs to root."""
        root = self.checkout()
        self.editable(self.user, root)
        install = tool("apply", "--python", SYSTEM, env=self.env)["install"]
        self.assertEqual((install["layout"], install["root"], install["site"], install["sglang"]),
                         ("editable", str(root), str(self.user), VERSION))
        self.assertEqual(self.ask(SYSTEM, "import sgl_pcie; print(sgl_pcie.__file__)"), f"{self.user}/sgl_pcie/__init__.py")
        tool("revert", "--python", SYSTEM, env=self.env)
        self.assertFalse((self.user / "sgl_pcie").exists())

    def test_an_environment_that_sees_the_system(self):
        """It sees the user's folder too, after its own; an environment on its own does not."""
        wheels.unpack(VERSION, self.user)
        python, site = self.venv("--system-site-packages")
        self.assertEqual(self.found(python)["root"], str(self.user))
        wheels.unpack(VERSION, site)
        self.assertEqual(self.found(python)["root"], str(site))
        alone, _ = self.venv(name="alone")
        tool("status", "--python", alone, env=self.env, want=2)

    def test_a_finder_of_setuptools(self):
        """The real tool: its finder puts no folder on the path, only find_spec() through it tells."""
        root, folder = self.checkout(), self.scratch / "builder"
        (root / "pyproject.toml").write_text(f'[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
                                             f'[project]\nname = "sglang"\nversion = "{VERSION}"\n'
                                             '[tool.setuptools.packages.find]\ninclude = ["sglang*"]\n')
        subprocess.run([SYSTEM, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "-e", root],
                       check=True)
        (site,) = folder.glob("lib/python*/site-packages")
        self.assertTrue(list(site.glob("__editable___sglang*_finder.py")), "no finder: this test would prove nothing")
        self.assertEqual(self.found(folder / "bin/python")["site"], str(site))
        for path in site.glob("*sglang*"):
            shutil.move(path, self.user)
        install = self.found(SYSTEM)
        self.assertEqual((install["root"], install["site"]), (str(root), str(self.user)))

    def test_the_users_folder_can_be_off(self):
        wheels.unpack(VERSION, self.user)
        tool("status", "--python", SYSTEM, env={**self.env, "PYTHONNOUSERSITE": "1"}, want=2)

    def test_the_folder_and_the_search_path_have_no_say(self):
        wheels.unpack(VERSION, self.scratch)
        (self.scratch / "json.py").write_text("raise SystemExit('the wrong json')\n")
        python, site = self.venv()
        tool("status", "--python", python, env={**self.env, "PYTHONPATH": str(self.scratch)}, cwd=self.scratch, want=2)
        wheels.unpack(VERSION, site)
        self.assertEqual(self.found("venv/bin/python3", PYTHONPATH=str(self.scratch))["root"], str(site))

    def test_a_shim_that_chooses_by_the_folder(self):
        """pyenv, asdf and mise do: the interpreter asked must be the one that a server started here would get."""
        python, site = self.venv()
        wheels.unpack(VERSION, site)
        (self.scratch / ".python-version").write_text(str(python))
        shim = self.scratch / "shims/python3"
        shim.parent.mkdir()
        shim.write_text('#!/bin/sh\nexec "$(cat .python-version)" "$@"\n')
        shim.chmod(0o755)
        self.assertEqual(self.found(shim)["root"], str(site))
        (site / "self.pth").write_text(f"{site}\n")
        self.assertEqual(tool("status", "--python", python, cwd=site)["install"]["root"], str(site))


class Answers(Case):
    """Interpreters that do not just answer."""

    def fake(self, script):
        path = self.scratch / "python3"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def refused(self, script):
        answer = tool("status", "--python", self.fake(script), want=5)
        self.assertEqual(answer["next"], "name another one with --python, or the folder with --site")
        return answer["message"]

    def test_a_python_that_prints_at_start_up(self):
        python, site = self.venv()
        wheels.unpack(VERSION, site)
        (site / "sitecustomize.py").write_text("import atexit, sys\nprint('{\"origin\": 1}', getattr(sys, 'orig_argv', ''))\n"
                                               "atexit.register(print, 'bye')\n")
        self.assertEqual(tool("status", "--python", python)["install"]["root"], str(site))

    def test_a_python_that_hangs(self):
        self.assertIn("did not answer within 20 s", self.refused("exec sleep 60"))

    def test_a_python_that_is_killed(self):
        self.assertIn("was ended by signal 9", self.refused("kill -9 $$"))

    def test_a_python_that_fails(self):
        message = self.refused("echo 'Traceback (most recent call last):\n  File \"x\", line 1\nImportError: no luck' >&2; exit 3")
        self.assertIn("status 3: ImportError: no luck", message)
        self.assertNotIn("Traceback", message)

    def test_a_broken_one_on_the_path(self):
        """It matters only when no environment is active that has an SGLang."""
        python, site = self.venv()
        wheels.unpack(VERSION, site)
        env = {"PATH": f"{self.fake('exit 3').parent}:{os.environ['PATH']}", "VIRTUAL_ENV": "", "CONDA_PREFIX": ""}
        self.assertIn("status 3", tool("status", env=env, want=5)["message"])
        env["VIRTUAL_ENV"] = str(python.parents[1])
        self.assertEqual(tool("status", env=env)["install"]["root"], str(site))
        python.unlink()
        python.write_text("#!/bin/sh\nexit 4\n")
        python.chmod(0o755)
        self.assertIn("status 4", tool("status", env=env, want=5)["message"])

    def test_a_program_that_is_no_python(self):
        self.assertIn("no usable answer", self.refused("echo '{}'"))

    def test_a_module_of_that_name(self):
        python, site = self.venv()
        (site / "sglang.py").write_text("")
        message = tool("status", "--python", python, want=2)["message"]
        self.assertIn(f"'{site}/sglang.py', which is not a package in a folder sglang/", message)

    def test_a_zipped_egg(self):
        python, site = self.venv()
        egg = self.scratch / "sglang.egg"
        with zipfile.ZipFile(egg, "w") as archive:
            archive.writestr("sglang/__init__.py", "")
        (site / "egg.pth").write_text(f"{egg}\n")
        answer = tool("status", "--python", python, want=2)
        self.assertIn(f"finds SGLang packed in '{egg}'", answer["message"])
        self.assertIn("--python", answer["next"])

    def test_what_a_shell_would_not_run(self):
        """A folder of that name is passed over, and an empty element is the folder that one stands in."""
        python, site = self.venv()
        wheels.unpack(VERSION, site)
        (self.scratch / "odd/python3").mkdir(parents=True)
        env = {"VIRTUAL_ENV": "", "CONDA_PREFIX": ""}
        for path in (f"{self.scratch}/odd:{python.parent}", f":{os.environ['PATH']}"):
            answer = tool("status", env={**env, "PATH": path}, cwd=python.parent)
            self.assertEqual(answer["install"]["root"], str(site))

    def test_a_package_at_the_root(self):
        python, site = self.venv()
        (site / "hook.py").write_text("import sys, types\nclass Finder:\n"
                                      "    def find_spec(name, path=None, target=None):\n"
                                      "        return types.SimpleNamespace(origin='/sglang/__init__.py') if name == 'sglang' else None\n"
                                      "sys.meta_path.insert(0, Finder)\n")
        (site / "hook.pth").write_text("import hook\n")
        self.assertIn("'/sglang/__init__.py'", tool("status", "--python", python, want=2)["message"])


class Folders(Case):
    def nobody(self):
        """Who may not read everything."""
        self.scratch.chmod(0o755)
        return {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}

    def test_a_folder_that_cannot_be_read(self):
        who, site = self.nobody(), self.scratch / "closed/site"
        wheels.unpack(VERSION, site)
        self.addCleanup(site.parent.chmod, 0o755)
        self.addCleanup(site.chmod, 0o755)
        for closed in (site, site.parent):
            closed.chmod(0)
            for option in ("--site", "--source"):
                message = tool("status", option, site, want=5, **who)["message"]
                self.assertIn(str(site), message)
                self.assertIn("Permission denied", message)
            closed.chmod(0o755)

    def test_a_checkout_whose_python_folder_cannot_be_read(self):
        who, checkout = self.nobody(), self.scratch / "checkout"
        wheels.unpack(VERSION, checkout / "python")
        self.addCleanup((checkout / "python").chmod, 0o755)
        (checkout / "python").chmod(0)
        self.assertIn("Permission denied", tool("status", "--source", checkout, want=5, **who)["message"])

    def test_a_file_of_that_name(self):
        (self.scratch / "sglang").write_text("")
        self.assertIn("there is no folder sglang/", tool("status", "--site", self.scratch, want=2)["message"])

    def test_what_stays_when_sglang_was_uninstalled(self):
        """pip takes SGLang's own files alone; no command works on the folder any more, so the error has what does."""
        python, site = self.venv()
        wheels.unpack(VERSION, site)
        before = {entry.name for entry in site.iterdir() if not entry.name.startswith("sglang")}
        for option, named in (("--python", python), ("--site", site)):
            wheels.unpack(VERSION, site)
            tool("apply", option, named)
            for entry in site.glob("sglang*"):
                shutil.rmtree(entry)
            answer = tool("revert", option, named, want=2)
            self.assertIn(f"what sgl-pcie put beside one is still in '{site}'", answer["message"])
            subprocess.run(["sh", "-c", answer["next"]], check=True)
            self.assertEqual({entry.name for entry in site.iterdir()}, before)
        (site / "sgl_pcie").mkdir()  # anybody's
        self.assertNotIn("rm ", tool("status", "--python", python, want=2)["next"])

    def test_an_environment_instead_of_its_folder(self):
        python, _ = self.venv()
        answer = tool("status", "--site", self.scratch / "venv", want=2)
        self.assertIn("there is no folder sglang/", answer["message"])
        self.assertIn(f"--python '{python}'", answer["next"])
        self.assertIn(f"--python '{python}'", tool("status", "--python", self.scratch / "venv", want=5)["next"])


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=1)
