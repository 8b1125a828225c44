"""How an install is found and who is in its way: interpreters as people set them up, and command lines as they write them.

    locate.py SGL_PCIE     path of the program
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

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

    def test_servers_block(self):
        for words in ([self.python, "-m", "sglang.launch_server"], [self.python, "-u", "-X", "dev", "-m", "sglang", "serve"],
                      [self.script, "serve"], [self.python, self.script, "serve"]):
            process = self.running(*words)
            answer = tool("apply", "--python", self.python, want=5)
            self.assertIn(f"pid {process.pid} ", answer["message"], words)
            process.kill()
            process.wait()
        self.round_trip()


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=1)
