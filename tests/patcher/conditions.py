"""The conditions that installs are found in: links, caches, read-only trees, hostile git settings, odd names, bytecode, races,
running servers. Real released wheels, installed by the tools that people use.

    conditions.py SGL_PCIE     path of the program
"""

import fcntl
import json
import os
import pathlib
import py_compile
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import wheels

PROGRAM = None
VERSION = "0.5.23"
UV_VERSION = "0.13.9"
FOLDER = "sglang/srt/distributed/device_communicators"
PATCHED = (f"{FOLDER}/custom_all_reduce.py", f"{FOLDER}/custom_all_reduce_utils.py")


def tool(*words, env=None, cwd=None, want=0):
    """Run the program; its JSON object, with the exit status checked."""
    done = subprocess.run([PROGRAM, *words, "--json"], capture_output=True, text=True, cwd=cwd,
                          env={**os.environ, **(env or {})}, check=False)
    if done.returncode != want:
        raise AssertionError(f"{words}: exit {done.returncode}, expected {want}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def snapshot(folder):
    """Every entry but bytecode: mode, and content or target."""
    found = {}
    for path in sorted(pathlib.Path(folder).rglob("*")):
        if "__pycache__" in path.parts:
            continue
        mode = path.lstat().st_mode
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(folder))] = (mode, content)
    return found


class Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name).resolve()

    def site(self, name="site"):
        folder = self.scratch / name
        folder.mkdir(parents=True)
        wheels.unpack(VERSION, folder)
        return folder

    def round_trip(self, *target, folder, **kwargs):
        """apply, look, revert: the tree is patched in between and as before afterwards."""
        before = snapshot(folder)
        applied = tool("apply", *target, **kwargs)
        self.assertEqual({file["state"] for file in tool("status", *target, **kwargs)["install"]["files"]}, {"applied"})
        tool("revert", *target, **kwargs)
        self.assertEqual(snapshot(folder), before)
        return applied


class Links(Case):
    def uv(self):
        """The real uv: from PATH, else out of its wheel."""
        if shutil.which("uv"):
            return shutil.which("uv")
        with zipfile.ZipFile(wheels.wheel(UV_VERSION, "uv")) as archive:
            (name,) = [name for name in archive.namelist() if name.endswith("/scripts/uv")]
            program = archive.extract(name, self.scratch)
        os.chmod(program, 0o755)
        return program

    def test_a_hard_linked_cache_keeps_its_bytes(self):
        cache = self.site("cache")
        site = self.scratch / "site"
        subprocess.run(["cp", "-al", cache, site], check=True)
        before = snapshot(cache)
        changes = tool("apply", "--site", str(site))
        self.assertIn("broke 2 hard links", changes["message"])
        self.assertEqual(snapshot(cache), before)
        self.assertNotIn("hard link", tool("revert", "--site", str(site))["message"])
        self.assertEqual(snapshot(site), before)

    def test_a_real_uv_cache_keeps_its_bytes(self):
        venv, cache = self.scratch / "venv", self.scratch / "uv-cache"
        env = {"UV_CACHE_DIR": str(cache), "UV_LINK_MODE": "hardlink"}
        program = self.uv()
        uv = lambda *words: subprocess.run([program, "--quiet", *words], check=True, env={**os.environ, **env})
        uv("venv", "--python", sys.executable, str(venv))
        uv("pip", "install", "--python", str(venv / "bin/python"), "--no-deps", str(wheels.wheel(VERSION)))
        before = snapshot(cache)
        (installed,) = venv.glob(f"lib/python*/site-packages/{PATCHED[0]}")
        self.assertGreater(installed.stat().st_nlink, 1, "uv did not hard-link: this test would prove nothing")
        changes = tool("apply", "--python", str(venv / "bin/python"))
        self.assertIn("broke 2 hard links", changes["message"])
        self.assertEqual(snapshot(cache), before)
        tool("revert", "--python", str(venv / "bin/python"))

    def test_a_linked_site_packages_is_followed(self):
        site, link = self.site(), self.scratch / "link"
        link.symlink_to(site)
        self.round_trip("--site", str(link), folder=site)

    def test_a_linked_package_is_refused(self):
        real, site = self.site("real"), self.scratch / "site"
        site.mkdir()
        (site / "sglang").symlink_to(real / "sglang")
        before = snapshot(real), snapshot(site)
        answer = tool("apply", "--site", str(site), want=5)
        self.assertIn("symbolic link", answer["message"])
        self.assertEqual((snapshot(real), snapshot(site)), before)

    def test_a_link_inside_the_package_is_refused(self):
        site, outside = self.site(), self.scratch / "outside"
        shutil.move(site / FOLDER, outside)
        (site / FOLDER).symlink_to(outside)
        before = snapshot(outside), snapshot(site)
        tool("apply", "--site", str(site), want=5)
        self.assertEqual((snapshot(outside), snapshot(site)), before)

    def test_a_link_in_place_of_a_file_is_refused(self):
        site, outside = self.site(), self.scratch / "outside.py"
        shutil.move(site / PATCHED[0], outside)
        (site / PATCHED[0]).symlink_to(outside)
        before = outside.read_bytes()
        tool("apply", "--site", str(site), want=5)
        self.assertEqual(outside.read_bytes(), before)


class Trees(Case):
    def test_odd_names(self):
        site = self.site("dir with spaces/größe 速い/$HOME;x")
        self.round_trip("--site", str(site), folder=site)

    def test_modes_survive(self):
        site = self.site()
        os.chmod(site / PATCHED[0], 0o640)
        os.chmod(site / PATCHED[1], 0o755)
        before = snapshot(site)
        tool("apply", "--site", str(site))
        self.assertEqual(stat.S_IMODE((site / PATCHED[0]).stat().st_mode), 0o640)
        self.assertEqual(stat.S_IMODE((site / PATCHED[1]).stat().st_mode), 0o755)
        tool("revert", "--site", str(site))
        self.assertEqual(snapshot(site), before)

    def test_a_strict_umask_does_not_hide_the_runtime(self):
        site = self.site()
        subprocess.run(["sh", "-c", 'umask 077; exec "$0" apply --quiet --site "$1"', PROGRAM, site], check=True)
        for path in ("sgl_pcie", "sgl_pcie/__init__.py", ".sgl-pcie/install.json"):
            mode = stat.S_IMODE((site / path).stat().st_mode)
            self.assertTrue(mode & 0o004, f"{path} has mode {mode:o}: other users' servers could not import it")

    def test_hostile_git_settings_have_no_influence(self):
        site, home = self.site(), self.scratch / "home"
        home.mkdir()
        (home / ".gitconfig").write_text("[core]\n\tautocrlf = true\n\teol = crlf\n\tattributesFile = ~/.gitattributes\n"
                                         "[apply]\n\twhitespace = fix\n[core]\n\tfileMode = true\n")
        (home / ".gitattributes").write_text("* text eol=crlf filter=evil\n*.py ident\n")
        (site / ".gitattributes").write_text("*.py text eol=crlf\n")
        env = {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
               "GIT_DIR": "/nonexistent", "GIT_WORK_TREE": "/"}
        self.round_trip("--site", str(site), folder=site, env=env)
        self.assertNotIn(b"\r", (site / PATCHED[0]).read_bytes())

    def test_a_crlf_file_is_drifted(self):
        site = self.site()
        file = site / PATCHED[0]
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
        before = snapshot(site)
        answer = tool("apply", "--site", str(site), want=4)
        self.assertEqual(answer["install"]["files"][0]["state"], "drifted")
        self.assertEqual(snapshot(site), before)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to mount")
    def test_a_read_only_tree_names_the_ways_that_work(self):
        site = self.site()
        mounted = subprocess.run(["mount", "--bind", site, site], capture_output=True, check=False).returncode == 0
        if not mounted:
            self.skipTest("cannot mount here")
        self.addCleanup(subprocess.run, ["umount", site], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", site], check=True)
        self.assertEqual(tool("status", "--site", str(site))["exit_code"], 0)
        answer = tool("apply", "--site", str(site), want=5)
        text = subprocess.run([PROGRAM, "apply", "--site", site], capture_output=True, text=True, check=False).stderr
        self.assertIn("read-only", answer["message"].lower())
        self.assertIn("RUN sgl-pcie apply", text)
        self.assertIn("copy", text)


class Sources(Case):
    def checkout(self):
        folder = self.scratch / "checkout"
        (folder / "python").mkdir(parents=True)
        wheels.unpack(VERSION, folder / "python")
        for info in (folder / "python").glob("*.dist-info"):
            shutil.rmtree(info)
        return folder

    def test_a_source_checkout(self):
        checkout = self.checkout()
        applied = self.round_trip("--source", str(checkout), folder=checkout)
        self.assertEqual(applied["install"]["layout"], "source")

    def test_a_git_checkout_keeps_its_index(self):
        checkout = self.checkout()
        git = lambda *words: subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *words], cwd=checkout,
                                            check=True, capture_output=True, text=True).stdout
        git("init", "-q")
        git("add", "-A")
        git("commit", "-qm", "release")
        index = (checkout / ".git/index").read_bytes()
        tool("apply", "--source", str(checkout))
        self.assertEqual((checkout / ".git/index").read_bytes(), index)
        tool("revert", "--source", str(checkout))
        self.assertEqual(git("status", "--porcelain"), "")

    def test_an_editable_install(self):
        """The package is patched where it is; the runtime goes where the interpreter imports from."""
        checkout, site, python = self.editable()
        before = snapshot(site), snapshot(checkout)
        answer = tool("apply", "--python", python)
        self.assertEqual(answer["install"]["layout"], "editable")
        self.assertTrue((site / "sgl_pcie/__init__.py").is_file())
        self.assertFalse((checkout / "python/sgl_pcie").exists())
        self.assertNotEqual(snapshot(checkout), before[1])
        subprocess.run([python, "-c", "import sgl_pcie"], check=True)
        tool("revert", "--python", python)
        self.assertEqual((snapshot(site), snapshot(checkout)), before)

    def editable(self):
        """A checkout, and an environment that imports it."""
        checkout, venv = self.checkout(), self.scratch / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        (site,) = venv.glob("lib/python*/site-packages")
        info = site / f"sglang-{VERSION}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {VERSION}\n")
        (site / "__editable__.sglang.pth").write_text(f"{checkout}/python\n")
        return checkout, site, str(venv / "bin/python")

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to make a file immutable")
    def test_an_editable_install_is_all_or_nothing(self):
        """The package cannot be written: the runtime, which lies elsewhere and went first, is taken back."""
        checkout, site, python = self.editable()
        file = checkout / "python" / PATCHED[0]
        before = snapshot(site), snapshot(checkout)
        if subprocess.run(["chattr", "+i", file], capture_output=True, check=False).returncode != 0:
            self.skipTest("no immutable files here")
        try:
            tool("apply", "--python", python, want=5)
        finally:
            subprocess.run(["chattr", "-i", file], check=True)
        self.assertEqual((snapshot(site), snapshot(checkout)), before)

    def test_an_editable_install_survives_a_kill_at_any_rename(self):
        checkout, site, python = self.editable()
        before = snapshot(site), snapshot(checkout)
        for number in range(1, 100):
            done = subprocess.run(["strace", "-f", "-o", "/dev/null", "-e", "trace=/^rename", "-e",
                                   f"inject=/^rename:signal=KILL:when={number}", PROGRAM, "apply", "--python", python],
                                  capture_output=True, check=False)
            if done.returncode == 0:
                break
            status = subprocess.run([PROGRAM, "status", "--python", python], capture_output=True, text=True, check=False)
            self.assertIn(status.returncode, (0, 10))
            if status.returncode == 10:
                self.assertIn(f"sgl-pcie recover --python '{python}'", status.stdout)
            tool("recover", "--python", python)
            tool("apply", "--python", python)
            tool("revert", "--python", python)
            self.assertEqual((snapshot(site), snapshot(checkout)), before, f"after a kill at rename {number}")
        self.assertGreater(number, 10, "nothing was killed: this test would prove nothing")

    def test_several_installs_are_listed_and_none_is_taken(self):
        pythons = []
        for name in ("a", "b"):
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.scratch / name], check=True)
            (site,) = (self.scratch / name).glob("lib/python*/site-packages")
            wheels.unpack(VERSION, site)
            pythons.append(str(self.scratch / name / "bin/python3"))
        env = {"VIRTUAL_ENV": str(self.scratch / "a"), "CONDA_PREFIX": str(self.scratch / "b")}
        message = tool("apply", env=env, want=2)["message"]
        for python in pythons:
            self.assertIn(f"--python '{python}'   sglang {VERSION}", message)
        tool("apply", "--python", pythons[0], env=env)
        self.assertEqual({file["state"] for file in tool("status", "--python", pythons[1])["install"]["files"]}, {"pristine"})


class Interrupted(Case):
    def test_a_folder_that_a_kill_left_empty_goes_with_revert(self):
        site = self.site()
        before = snapshot(site)
        (site / ".sgl-pcie").mkdir()
        tool("revert", "--site", str(site), "--dry-run")
        self.assertTrue((site / ".sgl-pcie").exists())
        tool("revert", "--site", str(site))
        self.assertEqual(snapshot(site), before)

    def test_a_writer_that_takes_longer_is_named_and_waited_for_once(self):
        site = self.site()
        (site / ".sgl-pcie").mkdir()
        (site / ".sgl-pcie/journal.stage").write_text("{}")
        folder = os.open(site, os.O_RDONLY)
        self.addCleanup(os.close, folder)
        fcntl.flock(folder, fcntl.LOCK_EX)
        start = time.monotonic()
        answer = tool("status", "--site", str(site), want=5)
        self.assertLess(time.monotonic() - start, 8)
        self.assertRegex(answer["message"], f"^process {os.getpid()} is still writing in ")
        fcntl.flock(folder, fcntl.LOCK_SH)  # as whoever looks
        self.assertIn("was interrupted in", tool("status", "--site", str(site), want=10)["message"])

    def chattr(self, letter, path):
        if subprocess.run(["chattr", "+" + letter, path], capture_output=True, check=False).returncode != 0:
            self.skipTest("no chattr here")
        self.addCleanup(subprocess.run, ["chattr", "-" + letter, path], check=True)

    def test_an_immutable_file_is_hinted_at(self):
        site = self.site()
        file = site / PATCHED[0]
        self.chattr("i", file)
        answer = tool("apply", "--site", str(site), want=5)
        self.assertEqual(answer["next"], f"lsattr -d '{file.parent}' '{file}'")

    def test_a_folder_that_may_only_grow_is_hinted_at(self):
        site = self.site()
        self.chattr("a", site / FOLDER)
        tool("apply", "--site", str(site), want=10)
        self.assertRegex(tool("recover", "--site", str(site), want=5)["next"], f"^lsattr -d '{site / FOLDER}' ")


class Strangers(Case):
    def test_files_of_others_in_our_folders_stay(self):
        site = self.site()
        for path in ("sgl_pcie/mine.py", "sgl_pcie/notes", ".sgl-pcie/note"):
            (site / path).parent.mkdir(exist_ok=True)
            (site / path).write_text("x = 1\n")
        self.round_trip("--site", str(site), folder=site)

    def test_what_no_program_of_ours_would_write_is_not_even_opened(self):
        site = self.site()
        for folder in (site / "sgl_pcie", site / ".sgl-pcie"):
            (folder / "a/b/c/d/e/f").mkdir(parents=True)
            (folder / "a/b/c/d/e/f/deep").write_text("")
            (folder / "link").symlink_to("/etc/passwd")
            (folder / "folder").symlink_to("/etc")
            os.mkfifo(folder / "fifo")
        self.round_trip("--site", str(site), folder=site)

    def test_a_link_in_place_of_a_file_of_ours_is_refused(self):
        site = self.site()
        tool("apply", "--site", str(site))
        (site / "sgl_pcie/flag.py").unlink()
        (site / "sgl_pcie/flag.py").symlink_to("/etc/passwd")
        before = snapshot(site)
        for command in ("apply", "revert"):
            self.assertIn("is a symbolic link", tool(command, "--site", str(site), want=5)["message"])
        self.assertEqual(snapshot(site), before)

    def test_a_package_of_our_name_is_not_overwritten(self):
        site = self.site()
        (site / "sgl_pcie").mkdir()
        (site / "sgl_pcie/__init__.py").write_text("somebody's\n")
        before = snapshot(site)
        self.assertIn("sgl_pcie/__init__.py", tool("apply", "--site", str(site), want=4)["message"])
        self.assertEqual(snapshot(site), before)

    def test_our_patch_in_a_file_of_another_release_is_taken_back(self):
        site = self.site()
        tool("apply", "--site", str(site))
        with zipfile.ZipFile(wheels.wheel("0.5.5")) as archive:
            (site / PATCHED[0]).write_bytes(archive.read(PATCHED[0]))
        tool("apply", "--site", str(site), want=4)
        tool("revert", "--site", str(site))
        self.assertNotIn(b"sgl_pcie", (site / PATCHED[1]).read_bytes())


class Bytecode(Case):
    def compiled(self, mode):
        """A package whose module is compiled: importing it runs the bytecode."""
        site = self.site()
        return site, py_compile.compile(str(site / PATCHED[0]), invalidation_mode=mode)

    def test_unchecked_bytecode_is_removed(self):
        site, pyc = self.compiled(py_compile.PycInvalidationMode.UNCHECKED_HASH)
        answer = tool("apply", "--site", str(site))
        self.assertFalse(os.path.exists(pyc))
        self.assertIn("removed 1 bytecode file", answer["message"])
        pyc = py_compile.compile(str(site / PATCHED[0]), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
        tool("revert", "--site", str(site))
        self.assertFalse(os.path.exists(pyc))

    def test_bytecode_of_other_modules_stays(self):
        site, _ = self.compiled(py_compile.PycInvalidationMode.TIMESTAMP)
        other = py_compile.compile(str(site / FOLDER / "pynccl.py"))
        tool("apply", "--site", str(site))
        self.assertTrue(os.path.exists(other))

    def test_bytecode_below_the_cache_prefix_is_removed(self):
        site, prefix = self.site(), self.scratch / "pyc"
        env = {"PYTHONPYCACHEPREFIX": str(prefix)}
        subprocess.run([sys.executable, "-m", "py_compile", site / PATCHED[0]], env={**os.environ, **env}, check=True)
        (pyc,) = prefix.rglob("custom_all_reduce.*.pyc")
        tool("apply", "--site", str(site), env=env)
        self.assertFalse(pyc.exists())

    def test_our_own_bytecode_goes_with_us(self):
        site = self.site()
        before = snapshot(site)
        tool("apply", "--site", str(site))
        subprocess.run([sys.executable, "-c", "import sgl_pcie"], check=True,
                       env={**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": ""})
        self.assertTrue((site / "sgl_pcie/__pycache__").is_dir())
        tool("revert", "--site", str(site))
        self.assertFalse((site / "sgl_pcie").exists())
        self.assertEqual(snapshot(site), before)


class Races(Case):
    def test_applies_at_once_end_in_one_patched_tree(self):
        for _ in range(5):
            site = self.site("race")
            before = snapshot(site)
            running = [subprocess.Popen([PROGRAM, "apply", "--site", site], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                       for _ in range(4)]
            ends = [process.communicate() and process.returncode for process in running]
            self.assertIn(0, ends)
            self.assertLessEqual(set(ends), {0, 5, 10})
            self.assertEqual({file["state"] for file in tool("status", "--site", str(site))["install"]["files"]}, {"applied"})
            tool("revert", "--site", str(site))
            self.assertEqual(snapshot(site), before)
            shutil.rmtree(site)

    def test_apply_and_revert_at_once_end_in_one_of_both(self):
        site = self.site()
        before = snapshot(site)
        for _ in range(5):
            running = [subprocess.Popen([PROGRAM, word, "--site", site], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                       for word in ("apply", "revert", "apply", "revert")]
            ends = {process.wait() for process in running}
            self.assertLessEqual(ends, {0, 5, 10})
            states = {file["state"] for file in tool("status", "--site", str(site))["install"]["files"]}
            self.assertEqual(len(states), 1, states)
        tool("revert", "--site", str(site))
        self.assertEqual(snapshot(site), before)


class Servers(Case):
    def running(self, *words, **kwargs):
        process = subprocess.Popen(words, stdout=subprocess.PIPE, **kwargs)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        process.stdout.readline()
        return process

    def check(self, site, process):
        before = snapshot(site)
        answer = tool("apply", "--site", str(site), want=5)
        self.assertIn(f"pid {process.pid} ", answer["message"])
        self.assertEqual(snapshot(site), before)
        tool("apply", "--site", str(site), "--while-running")
        tool("revert", "--site", str(site), want=5)
        tool("revert", "--site", str(site), "--while-running")
        self.assertEqual(snapshot(site), before)
        self.assertIsNone(process.poll(), "the server was harmed")

    def test_a_process_that_maps_a_file_of_the_package(self):
        site = self.site()
        code = ("import mmap,sys,time\nf=open(sys.argv[1],'rb')\nm=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ)\nf.close()\n"
                "print(flush=True)\ntime.sleep(600)")
        self.check(site, self.running(sys.executable, "-c", code, site / PATCHED[0]))

    def test_a_server_that_imported_the_package(self):
        """The interpreter of the environment, started as people start a server: nothing of the package is mapped."""
        venv = self.scratch / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        (site,) = venv.glob("lib/python*/site-packages")
        wheels.unpack(VERSION, site)
        (site / "sglang/__init__.py").write_text("")
        (site / "sglang/launch_server.py").write_text("import time\nprint(flush=True)\ntime.sleep(600)\n")
        self.check(site, self.running(venv / "bin/python", "-m", "sglang.launch_server"))

    def test_another_environment_is_no_obstacle(self):
        site, other = self.site(), self.site("other")
        code = "import mmap,sys,time\nf=open(sys.argv[1],'rb')\nm=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ)\nprint(flush=True)\ntime.sleep(600)"
        self.running(sys.executable, "-c", code, other / PATCHED[0])
        self.round_trip("--site", str(site), folder=site)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=1)
