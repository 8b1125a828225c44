"""sgl-pcie build with a toolchain that behaves badly on demand (the nvcc of this folder) and kernels of a few lines, in trees
of a released SGLang: every way in which it can go wrong, and what must not happen then."""

import base64
import contextlib
import csv
import hashlib
import json
import os
import pathlib
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "patches"), str(HERE.parent / "cli")]

import real  # noqa: E402
import schema  # noqa: E402

SOURCES = {
    "a.c": '#include "a.h"\nvoid *kernel(void);\n__attribute__((visibility("default"))) void *par_a(void)\n{ return kernel(); }\n'
           "void *hidden(void) { return kernel(); }\n",
    "a.h": "#include <cuda_runtime_api.h>\nvoid *par_a(void);\n",
    "k.cu": 'extern "C" __global__ void *kernel(void)\n{\n    static char noise[] = NOISE;\n    return noise;\n}\n',
    "libpar.map": "{ global: par_*; local: *; };\n",
    "gpu/main.c": '#include "kernels/a.h"\nint main(void) { return par_a() == 0; }\n',
    "m.c": "#define Py_LIMITED_API 0x030a0000\n#include <Python.h>\nint module(void) { return PY_MAJOR_VERSION; }\n",
}
OUTPUTS = {"libpar.so", "sgl-pcie-gpu", "_sgl_pcie.abi3.so"}


def make_data(folder):
    """A data directory with the real recipe, but few and small sources."""
    recipe = json.loads((real.ROOT / "kernels/sources.json").read_text())
    program, module = recipe["others"]
    recipe |= {"sources": ["a.c"], "kernels": ["k.cu"], "headers": ["a.h"]}
    program |= {"sources": ["gpu/main.c"], "kernels": [], "headers": []}
    module |= {"sources": ["m.c"], "kernels": [], "headers": []}
    for name, text in SOURCES.items():
        path = folder / "kernels" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "kernels/sources.json").write_text(json.dumps(recipe))
    for name in ("patches", "python"):
        (folder / name).symlink_to(real.ROOT / name)


def make_toolkit(folder):
    """Folders with a blank in their name: nvcc quotes them."""
    for name in ("bin", "include", "lib"):
        (folder / name).mkdir(parents=True)
    shutil.copy(HERE / "nvcc", folder / "bin/nvcc")
    (folder / "include/cuda_runtime_api.h").write_text("")
    (folder / "empty.c").write_text("")
    subprocess.run(["gcc", "-c", "empty.c", "-o", "empty.o"], cwd=folder, check=True)
    subprocess.run(["ar", "crD", "lib/libcudart_static.a", "empty.o"], cwd=folder, check=True)


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.fixture = pathlib.Path(scratch.name).resolve() / "fixture"
        real.site(real.NEWEST, cls.fixture / "stock")
        shutil.copytree(cls.fixture / "stock", cls.fixture / "patched")
        subprocess.run([real.CLI, "apply", "--quiet", "--site", cls.fixture / "patched"], check=True)

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name).resolve()
        self.site = self.folder / "site"
        shutil.copytree(self.fixture / "patched", self.site)
        self.toolkit = self.folder / "tool kit"
        make_toolkit(self.toolkit)
        self.data = self.folder / "data"
        make_data(self.data)
        self.tmp = self.folder / "tmp"
        self.tmp.mkdir()
        self.env = {
            "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(self.folder),
            "TMPDIR": str(self.tmp),
            "SGL_PCIE_DATA": str(self.data),
            "SGL_PCIE_NVCC": str(self.toolkit / "bin/nvcc"),
            "LC_ALL": "C.UTF-8",
        } | {name: value for name, value in os.environ.items() if name.startswith(("ASAN_", "UBSAN_", "LSAN_"))}

    def tool(self, command, *words, want=0, site=None, target="--site", preexec_fn=None, **env):
        """The JSON object, valid by its schema, with the exit status checked, unless that is None."""
        done = subprocess.run([real.CLI, command, target, str(site or self.site), *words, "--json"], env=self.env | env,
                              capture_output=True, text=True, check=False, preexec_fn=preexec_fn)
        self.assertIn(done.returncode, range(11) if want is None else [want], done.stdout + done.stderr)
        answer = json.loads(done.stdout)
        schema.validate(answer)
        return answer

    def build(self, *words, arch="sm_90", **more):
        return self.tool("build", *(["--arch", arch] if arch else []), *words, **more)

    def behave(self, name, text=""):
        (self.toolkit / "bin" / name).write_text(text)

    def compiled(self):
        """What nvcc was asked to compile since the last time."""
        log = self.toolkit / "bin/log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [line for line in lines if "probe.cu" not in line]

    def package(self, name, site=None):
        return (site or self.site) / "sgl_pcie" / name

    def refused(self, *words, want, says, hints=None, **more):
        """An error that says this; nothing is left in TMPDIR, and the install is as it was."""
        before = real.snapshot(self.site)
        answer = self.build(*words, want=want, **more)
        self.assertRegex(answer["message"], says)
        if hints:
            self.assertRegex(answer["next"], hints)
        self.assertEqual(real.snapshot(self.site), before)
        self.assertEqual([path for path in self.tmp.iterdir() if path.suffix != ".log"], [])
        self.assertEqual(answer["log"] is not None, want == 6 and "does not accept" not in answer["message"])
        return answer


class Build(Case):
    def check_record(self):
        """Every line of RECORD is true, and every file of ours is in it."""
        listed = set()
        (record,) = self.site.glob("sgl_pcie_runtime-*.dist-info/RECORD")
        for path, digest, size in csv.reader(record.read_text().splitlines()):
            listed.add(path)
            if digest:
                data = (self.site / path).read_bytes()
                found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                self.assertEqual((digest, size), (f"sha256={found}", str(len(data))), path)
        ours = {str(path.relative_to(self.site)) for path in self.package("").rglob("*") if path.is_file()}
        self.assertEqual({path for path in listed if path.startswith("sgl_pcie/")}, ours)

    def test_what_is_built_is_listed_hashed_and_usable(self):
        answer = self.build()
        self.assertEqual({entry["path"] for entry in answer["outputs"]}, {f"sgl_pcie/{name}" for name in OUTPUTS})
        for entry in answer["outputs"]:
            self.assertEqual(hashlib.sha256((self.site / entry["path"]).read_bytes()).hexdigest(), entry["sha256"])
        modes = {name: stat.S_IMODE(self.package(name).stat().st_mode) for name in sorted(OUTPUTS | {"build.json"})}
        self.assertEqual(modes, {name: 0o755 if name == "sgl-pcie-gpu" else 0o644 for name in sorted(modes)})
        subprocess.run([self.package("sgl-pcie-gpu")], check=True)  # finds libpar.so beside itself
        self.check_record()
        self.assertEqual(list(self.tmp.iterdir()), [])
        (library,) = [entry["sha256"] for entry in answer["outputs"] if entry["path"].endswith("libpar.so")]
        self.assertEqual(self.tool("status")["extension"], {"present": True, "sha256": library})

    def test_the_record_tells_all_and_is_the_same_anywhere(self):
        elsewhere = self.folder / "another place" / "with a longer name"
        shutil.copytree(self.site, elsewhere)
        toolkit = self.folder / "t"
        shutil.copytree(self.toolkit, toolkit)
        (self.folder / "u").mkdir()
        self.build()
        self.build(site=elsewhere, TMPDIR=str(self.folder / "u"), SGL_PCIE_NVCC=str(toolkit / "bin/nvcc"))
        text = self.package("build.json").read_text()
        self.assertEqual(self.package("build.json", elsewhere).read_text(), text)
        for path in (self.folder, self.toolkit, "/usr/bin", "/tmp"):
            self.assertNotIn(str(path), text)
        record = json.loads(text)
        schema.validator("build-record.schema.json").validate(record)
        self.assertEqual(record["architectures"], ["sm_90"])
        self.assertEqual(record["compilers"]["nvcc"], "13.0.88")
        inputs = {entry["path"]: entry["sha256"] for entry in record["inputs"]}
        for name in SOURCES:
            self.assertEqual(inputs[name], hashlib.sha256(SOURCES[name].encode()).hexdigest())
        self.assertLessEqual({"sources.json", "libcudart_static.a"}, inputs.keys())
        self.assertEqual({entry["path"] for entry in record["outputs"]}, OUTPUTS)
        self.assertIn("--frandom-seed=k.cu", [word for argv in record["commands"] for word in argv])

    def test_nothing_is_compiled_when_nothing_changed(self):
        self.assertFalse(self.build()["up_to_date"])
        before = real.snapshot(self.site)
        self.compiled()
        self.assertTrue(self.build()["up_to_date"])
        self.assertEqual(self.compiled(), [])
        self.assertEqual(real.snapshot(self.site), before)

    def test_every_change_is_noticed(self):
        def header():
            (self.data / "kernels/a.h").write_text(SOURCES["a.h"] + "/* changed */\n")

        def library():
            self.package("libpar.so").write_bytes(b"something else")

        def gone():
            self.package("sgl-pcie-gpu").unlink()

        def damaged():
            self.package("build.json").write_text("{")

        def runtime():
            with open(self.toolkit / "lib/libcudart_static.a", "ab") as archive:
                archive.write(b"\n")

        def compiler():
            self.behave("version", "13.0.89")

        self.build()
        for change in (header, library, gone, damaged, runtime, compiler):
            with self.subTest(change.__name__):
                change()
                self.assertFalse(self.build()["up_to_date"])
                self.check_record()
                self.assertTrue(self.build()["up_to_date"])
        self.assertFalse(self.build(arch="sm_75")["up_to_date"])

    def edit_record(self, change):
        path = self.package("build.json")
        record = json.loads(path.read_text())
        change(record["outputs"])
        path.write_text(json.dumps(record))

    def test_a_record_that_lists_what_is_not_built(self):
        """It is made anew, and nothing but a product is removed for not being built."""
        self.build()
        before = real.snapshot(self.site)
        for name in ("flag.py", "upstream.json", "../sglang/version.py"):
            with self.subTest(name):
                self.package("upstream.json").write_text("{}")
                self.edit_record(lambda outputs: outputs.append({"path": name, "sha256": "0" * 64, "bytes": 1}))
                self.assertFalse(self.build()["up_to_date"])
                self.assertEqual(self.package("upstream.json").read_text(), "{}")
                self.package("upstream.json").unlink()
                self.assertEqual(real.snapshot(self.site), before)
        self.assertTrue(self.build()["up_to_date"])

    def test_a_record_that_lists_less_than_is_built(self):
        self.build()
        before = real.snapshot(self.site)
        self.edit_record(lambda outputs: outputs.__delitem__(slice(1, None)))
        for name in OUTPUTS - {"libpar.so"}:
            self.package(name).unlink()
        self.refused("--check", want=1, says="is missing in one of this build and the install", hints="sgl-pcie build")
        self.assertFalse(self.build()["up_to_date"])
        self.assertEqual(real.snapshot(self.site), before)

    def test_a_lost_execute_bit_comes_back(self):
        self.build()
        before = real.snapshot(self.site)
        for more in ("", "/* changed */\n"):  # with the same bytes, and with others
            (self.data / "kernels/a.h").write_text(SOURCES["a.h"] + more)
            os.chmod(self.package("sgl-pcie-gpu"), 0o640)
            if not more:
                self.refused("--check", want=1, says="'sgl-pcie-gpu' of the install cannot be executed", hints="sgl-pcie build")
            self.assertFalse(self.build()["up_to_date"])
            self.assertEqual(stat.S_IMODE(self.package("sgl-pcie-gpu").stat().st_mode), 0o750)
            self.assertTrue(self.build()["up_to_date"])
            os.chmod(self.package("sgl-pcie-gpu"), 0o755)
            if not more:
                self.assertEqual(real.snapshot(self.site), before)

    def test_apply_leaves_what_was_built_and_revert_leaves_no_trace(self):
        self.build()
        before = real.snapshot(self.site)
        self.assertEqual(self.tool("apply")["changes"], [])
        self.assertEqual(real.snapshot(self.site), before)
        self.tool("revert")
        self.assertEqual(real.snapshot(self.site), real.snapshot(self.fixture / "stock"))

    def test_an_upgrade_of_the_runtime_keeps_what_was_built_listed(self):
        self.build()
        self.package("flag.py").write_text("")  # as an earlier version of ours would have it
        self.refused(want=5, says="not the one of this program", hints="sgl-pcie apply")
        self.tool("apply")
        self.check_record()
        self.assertTrue(self.build()["up_to_date"])

    def test_a_lost_record_is_made_again(self):
        self.build()
        for folder in self.site.glob("sgl_pcie_runtime-*.dist-info"):
            shutil.rmtree(folder)
        self.tool("apply")
        self.check_record()
        self.assertFalse(self.build(arch="sm_75")["up_to_date"])
        self.check_record()
        for name in ("libupstream.so", "upstream.json"):
            self.package(name).write_text("")
        for folder in self.site.glob("sgl_pcie_runtime-*.dist-info"):
            shutil.rmtree(folder)
        self.tool("revert")
        self.assertEqual(real.snapshot(self.site), real.snapshot(self.fixture / "stock"))

    def test_what_build_would_write_is_somebody_elses_where_nothing_says_otherwise(self):
        theirs = self.package("libpar.so")
        theirs.write_text("mine")
        self.refused(want=4, says="is already there")
        self.tool("apply")
        self.tool("revert")
        self.assertEqual(theirs.read_text(), "mine")
        self.package("build.json").write_text("{}")  # on a stock install, beside a package of that name
        self.tool("revert")
        self.assertEqual(self.package("build.json").read_text(), "{}")
        self.refused(want=5, says="nothing to build into")

    def test_a_stock_install_is_told_to_apply_first(self):
        self.tool("revert")
        self.refused(want=5, says="nothing to build into", hints=f"sgl-pcie apply --site '?{self.site}")

    def test_the_users_flags_do_not_get_in(self):
        self.build()
        text = self.package("build.json").read_text()
        self.package("libpar.so").unlink()
        self.build(NVCC_APPEND_FLAGS="-G", NVCC_PREPEND_FLAGS="-G", CPATH="/nowhere", GCC_EXEC_PREFIX="/nowhere",
                   SOURCE_DATE_EPOCH="77", LANG="de_DE.UTF-8", CFLAGS="-g")
        self.assertEqual(self.package("build.json").read_text(), text)
        seen = (self.toolkit / "bin/environment").read_text()
        (line,) = [line for line in (real.ROOT / "docs/build.md").read_text().splitlines() if "compilers see `PATH`" in line]
        names = {entry.partition("=")[0] for entry in seen.splitlines()} - {"PWD", "OLDPWD", "SHLVL", "_"}  # the shell's own
        self.assertEqual({name for name in names if f"`{name}`" not in line and f"`{name}=" not in line}, set())
        for name in ("NVCC_APPEND_FLAGS", "CPATH", "LANG", "CFLAGS", "SOURCE_DATE_EPOCH=77"):
            self.assertNotIn(name, seen)

    def test_an_old_nvcc_does_without_a_random_seed(self):
        self.behave("old")
        self.build()
        self.assertNotIn("--frandom-seed", self.package("build.json").read_text())

    def test_a_read_only_install(self):
        os.chmod(self.package(""), 0o555)
        command = [HERE.parent / "cli/bin/unprivileged", real.CLI, "build", "--arch", "sm_90", "--site", self.site]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, check=False)
        os.chmod(self.package(""), 0o755)
        self.assertEqual((done.returncode, self.compiled()), (5, []), done.stderr)
        self.assertIn("cannot write", done.stderr)

    def test_a_running_server_is_no_obstacle_but_told(self):
        self.assertEqual(self.build()["warnings"], [])
        with open(self.site / "sglang/version.py") as held, \
                open(self.package("libpar.so"), "rb") as loaded:
            old = loaded.read()
            server = subprocess.Popen(["sleep", "100"], pass_fds=[held.fileno()])
            self.addCleanup(server.wait)
            self.addCleanup(server.kill)
            (self.data / "kernels/k.cu").write_text(SOURCES["k.cu"].replace("char noise", "char noise[9], other"))
            (warning,) = self.build()["warnings"]
            self.assertRegex(warning, f"(?s)pid {server.pid}.*until it is started again")
            loaded.seek(0)
            self.assertEqual(loaded.read(), old)  # replaced, not written over
            self.assertNotEqual(self.package("libpar.so").read_bytes(), old)

    def test_two_at_once(self):
        command = [real.CLI, "build", "--quiet", "--arch", "sm_90", "--site", self.site]
        both = [subprocess.Popen(command, env=self.env) for _ in range(2)]
        self.assertEqual([one.wait() for one in both], [0, 0])
        self.check_record()
        self.assertTrue(self.build()["up_to_date"])


class Check(Case):
    def check(self, **more):
        return self.build("--check", **more)

    def test_reproduced_and_nothing_written(self):
        before = real.snapshot(self.site)
        self.assertRegex(self.check()["message"], "two builds of 3 files for sm_90 have the same bytes$")
        self.assertEqual(real.snapshot(self.site), before)
        self.build()
        self.assertRegex(self.check()["message"], "and so has the install$")

    def test_a_stock_install_will_do(self):
        self.tool("revert")
        self.check()
        self.assertEqual(real.snapshot(self.site), real.snapshot(self.fixture / "stock"))

    def test_noise_is_found(self):
        self.behave("flaky")
        self.refused("--check", want=1, says=r"'libpar.so' differs between two builds: .* first at byte \d+ \(section \.\S+\)",
                     hints="SGL_PCIE_NVCC and NVCC_CCBIN")

    def test_the_folder_in_the_bytes_is_found(self):
        self.behave("path")
        self.refused("--check", want=1, says="'libpar.so' differs between two builds")

    def test_an_install_that_is_not_what_it_says(self):
        self.build()
        path = self.package("libpar.so")
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        self.refused("--check", want=1, says=f"differs between this build and the install: .* first at byte {len(data) - 1}",
                     hints=f"^sgl-pcie build --arch sm_90 --site {self.site}")


class Toolchain(Case):
    def test_places_of_nvcc(self):
        """The named one wins, then the variables, then PATH."""
        other = self.folder / "other"
        shutil.copytree(self.toolkit, other)
        without = {"SGL_PCIE_NVCC": ""}
        for env, place, nvcc in (
            ({"CUDA_HOME": str(other)}, "$SGL_PCIE_NVCC", self.toolkit),
            (without | {"CUDA_HOME": str(other), "PATH": f"{self.toolkit}/bin:{self.env['PATH']}"}, "$CUDA_HOME", other),
            (without | {"CUDA_HOME": "/nowhere", "CUDA_PATH": str(other)}, "$CUDA_PATH", other),
            (without | {"PATH": f"{other}/bin:{self.env['PATH']}"}, "PATH", other),
            ({"SGL_PCIE_NVCC": "nvcc", "PATH": f"{other}/bin:{self.env['PATH']}"}, "$SGL_PCIE_NVCC", other),
        ):
            with self.subTest(place):
                found = self.build("--check", **env)["toolchain"]
                self.assertEqual((found["nvcc_from"], found["nvcc"]), (place, str(nvcc / "bin/nvcc")))

    def hidden(self, *words, want):
        """In a mount namespace where /usr/local has no CUDA."""
        command = "mount -t tmpfs none /usr/local 2>/dev/null || exit 77; exec \"$@\""
        done = subprocess.run(["unshare", "-rm", "sh", "-c", command, "sh", real.CLI, *words, "--json"],
                              env=self.env | {"SGL_PCIE_NVCC": ""}, capture_output=True, text=True, check=False)
        if not done.stdout and os.path.exists("/usr/local/cuda/bin/nvcc"):
            self.skipTest("no namespaces here, and /usr/local/cuda is in the way")
        self.assertEqual(done.returncode, want, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def test_no_nvcc_and_the_one_of_pip(self):
        words = ("build", "--site", str(self.site), "--arch", "sm_90")
        answer = self.hidden(*words, want=5)
        self.assertRegex(answer["message"], "no nvcc")
        self.assertRegex(answer["message"], "comes with pip's nvidia-cuda-nvcc")
        self.assertIsNone(answer["next"])  # whose pip is not known
        venv = self.folder / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        (site,) = venv.glob("lib/python*/site-packages")
        shutil.copytree(self.site, site, dirs_exist_ok=True)
        answer = self.hidden("build", "--python", f"{venv}/bin/python3", "--arch", "sm_90", want=5)
        self.assertEqual(answer["next"], f"uv pip install --python '{venv}/bin/python3' nvidia-cuda-nvcc")
        shutil.copytree(self.toolkit, self.site / "nvidia/cu13")
        self.assertEqual(self.hidden(*words, want=0)["toolchain"]["nvcc_from"], "pip")

    def test_the_nvcc_of_pip_in_a_folder_that_looks_like_a_pattern(self):
        site = self.folder / "a[1]*?b"
        shutil.copytree(self.site, site)
        shutil.copytree(self.toolkit, site / "nvidia/cu13")
        answer = self.hidden("build", "--site", str(site), "--arch", "sm_90", want=0)
        self.assertEqual(answer["toolchain"]["nvcc"], str(site / "nvidia/cu13/bin/nvcc"))

    def test_an_nvcc_that_is_none(self):
        self.refused(want=5, says="not a program", SGL_PCIE_NVCC=str(self.folder))
        self.refused(want=5, says="does not answer as nvcc does", SGL_PCIE_NVCC="/bin/true")
        broken = self.folder / "nvcc"
        broken.write_text("#!/bin/sh\necho 'nvcc: error while loading shared libraries: libfoo.so' >&2\nexit 127\n")
        broken.chmod(0o755)
        self.refused(want=5, says="(?s)nvcc --version' does not answer as nvcc does: it failed with exit status 127:\n  nvcc: error while .*libfoo",
                     hints="SGL_PCIE_NVCC", SGL_PCIE_NVCC=str(broken))

    def test_an_nvcc_that_is_killed(self):
        for option in ("--version", "--help"):
            self.behave("killed", option)
            self.refused(want=5, says=f"nvcc {option}' does not answer as nvcc does: it was ended by signal 9$", hints="SGL_PCIE_NVCC")
        self.behave("killed", "--list-gpu-code")
        self.refused(want=5, says="nvcc' was ended by signal 9", hints="SGL_PCIE_NVCC")

    def test_a_version_that_is_none(self):
        """An empty one, and one that no record can hold."""
        for version in (b"", b"thirteen", b"13.0\xff"):
            (self.toolkit / "bin/version").write_bytes(version)
            self.refused(want=5, says="nvcc --version' does not answer as nvcc does", hints="SGL_PCIE_NVCC")

    def test_a_compiler_whose_version_no_record_can_hold(self):
        compiler = self.folder / "gcc-of-old"
        compiler.write_bytes(b"#!/bin/sh\ncase $1 in --version) echo 'gcc (D\xe9bian) 12' ;; *) exec gcc \"$@\" ;; esac\n")
        compiler.chmod(0o755)
        self.refused(want=5, says=f"'{compiler} --version' answers with a version that is not UTF-8", hints="NVCC_CCBIN",
                     NVCC_CCBIN=str(compiler))

    def test_a_toolkit_without_its_runtime(self):
        (self.toolkit / "lib/libcudart_static.a").unlink()
        self.refused(want=5, says="comes without 'libcudart_static.a'", hints="nvidia-cuda-runtime")

    def test_an_nvcc_that_does_not_say_where_it_looks(self):
        self.behave("lost", "nvcc fatal   : I am lost\n")
        self.refused(want=5, says="(?s)--dryrun' does not answer as nvcc does: it failed with exit status 1:\n  nvcc fatal   : I am lost",
                     hints="SGL_PCIE_NVCC, or another host compiler with NVCC_CCBIN")

    def test_no_place_for_a_scratch_folder(self):
        """Said of TMPDIR, before a compiler says something else for want of it."""
        plain = self.folder / "plain"
        plain.write_text("")
        for place, why in ((self.folder / "nowhere", "No such file"), (plain, "Not a directory")):
            self.refused(want=5, says="cannot make a folder in \\$TMPDIR '%s': %s" % (place, why), hints="TMPDIR",
                         TMPDIR=str(place))
        self.assertEqual(self.compiled(), [])

    def compilers(self, *names):
        """A PATH with gcc only under these names."""
        folder = self.folder / "bin"
        folder.mkdir()
        for name in os.listdir("/usr/bin"):
            if not name.startswith(("gcc", "clang")):
                (folder / name).symlink_to(f"/usr/bin/{name}")
        for name in names:
            (folder / name).symlink_to("/usr/bin/gcc")
        return str(folder)

    def test_the_first_compiler_that_nvcc_accepts(self):
        path = self.compilers("gcc", "gcc-14", "gcc-12")
        self.behave("refuse", "gcc\ngcc-14\n")
        self.assertEqual(self.build(PATH=path)["toolchain"]["cc"], f"{path}/gcc-12")

    def test_no_compiler_need_be_called_gcc(self):
        """Not even for nvcc's own question where its headers are: it runs gcc for that unless told otherwise."""
        path = self.compilers("gcc-12")
        self.assertEqual(self.build(PATH=path)["toolchain"]["cc"], f"{path}/gcc-12")
        (self.folder / "bin/gcc-12").unlink()
        self.assertEqual(self.build("--check", PATH=path, NVCC_CCBIN="/usr/bin/gcc")["toolchain"]["cc"], "/usr/bin/gcc")

    def test_a_compiler_that_nvcc_refuses(self):
        path = self.compilers("gcc", "gcc-12")
        self.behave("refuse", "gcc\ngcc-12\n")
        self.refused(want=6, says="(?s)does not accept the host compiler '.*/gcc':.*unsupported GNU version", hints="NVCC_CCBIN",
                     PATH=path)
        self.refused(want=6, says="does not accept the host compiler '.*/gcc-12'", PATH=path, NVCC_CCBIN="gcc-12")
        self.assertEqual(self.compiled(), [])

    def test_no_compiler(self):
        self.refused(want=5, says="no host compiler", hints="apt-get install gcc g\\+\\+", PATH=self.compilers())

    def test_the_compiler_that_is_named(self):
        for name in ("/usr/bin/g++", "/usr/bin"):
            found = self.build("--check", NVCC_CCBIN=name)["toolchain"]["cc"]
            self.assertEqual(found, "/usr/bin/g++" if name.endswith("+") else "/usr/bin/gcc")
        self.refused(want=5, says="NVCC_CCBIN is '/nowhere'", NVCC_CCBIN="/nowhere")

    def test_a_driver_compiler_of_cplusplus_adds_no_library(self):
        self.build(NVCC_CCBIN="/usr/bin/g++")
        text = subprocess.run(["readelf", "-d", self.package("libpar.so")], capture_output=True, text=True, check=True).stdout
        self.assertNotIn("stdc++", text)

    def test_a_compile_error(self):
        self.behave("fail", "k.cu(3): error: identifier \"frobnicate\" is undefined\n" + "and more\n" * 100)
        answer = self.refused(want=6, says=r"(?s)cannot build 'k\.cu': '.*nvcc .*' failed with exit status 2:\n  k\.cu\(3\): error",
                              hints=f"all that was said is in '{self.tmp}")
        self.assertLess(answer["message"].count("\n"), 12)
        log = pathlib.Path(answer["log"]).read_text()
        self.assertEqual(log.count("and more"), 100)
        self.assertIn("nvcc", log.splitlines()[0])

    def test_a_compiler_that_writes_nothing(self):
        for name in ("silent", "folder"):
            self.behave(name)
            answer = self.refused(want=6, says="cannot build 'a kernel of one line': '.*/nvcc .*' ended well but wrote nothing$",
                                  hints="all that was said is in")
            self.assertIn("nvcc", pathlib.Path(answer["log"]).read_text())
            (self.toolkit / "bin" / name).unlink()
        linker = self.folder / "gcc"
        linker.write_text("#!/bin/sh\ncase $* in *-soname*) ;; *) exec /usr/bin/gcc \"$@\" ;; esac\n")
        linker.chmod(0o755)
        self.refused(want=6, says=f"cannot build 'libpar.so': '{linker} .*' ended well but wrote nothing$", NVCC_CCBIN=str(linker))

    def test_a_disk_that_is_full_for_a_compiler(self):
        """Whatever it is that has no space, compiling again would not help."""
        self.behave("lost", "IO failure on output stream: No space left on device\n")
        self.refused(want=5, says=f"cannot ask '.*nvcc --dryrun': no space is left in '{self.tmp}'$", hints="TMPDIR")
        (self.toolkit / "bin/lost").unlink()
        self.behave("fail", "/usr/bin/ld: final link failed: No space left on device\n")
        self.refused(want=5, says=f"(?s)cannot build 'k.cu': no space is left in '{self.tmp}':\n  .*final link failed", hints="TMPDIR")
        self.assertEqual(list(self.tmp.iterdir()), [])

    def on_a_disk_of(self, size):
        """build with a TMPDIR of that size: its exit status and object; nothing may stay there. One compiler after the other, so
        that none takes the space of another one."""
        place = self.folder / "small"
        place.mkdir(exist_ok=True)
        script = f"mount -t tmpfs -o size={size} none \"$0\" 2>/dev/null || exit 77; \"$@\"; code=$?; ls \"$0\" >&2; exit $code"
        words = [real.CLI, "build", "--arch", "sm_90", "--site", self.site, "--json"]
        cpus = {min(os.sched_getaffinity(0))}
        done = subprocess.run(["unshare", "-rm", "sh", "-c", script, place, *words], env=self.env | {"TMPDIR": str(place)},
                              capture_output=True, text=True, check=False, preexec_fn=lambda: os.sched_setaffinity(0, cpus))
        if not done.stdout:
            self.skipTest("no namespaces here")
        answer = json.loads(done.stdout)
        self.assertEqual((done.stderr, answer["log"]), ("", None))
        if done.returncode:
            self.assertRegex(answer["next"], "TMPDIR")
        return done.returncode, answer

    def test_a_disk_that_is_full(self):
        """From no space for a folder on to none for what is linked."""
        codes = set()
        for size in ("4k", "16k", "40k", "64k", "8m"):
            code, answer = self.on_a_disk_of(size)
            codes.add(code)
            if code:
                self.assertRegex(answer["message"], "[Nn]o space")
        self.assertEqual(codes, {0, 5})

    def test_files_that_may_not_be_as_large(self):
        """From no file of ours on to none for what is compiled, and the install."""
        codes = set()
        for size in (0, 100, 2000, 8000, 10 << 20):
            limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))  # noqa: E731
            before = real.snapshot(self.site)
            answer = self.build(want=None, preexec_fn=limit)
            codes.add(answer["exit_code"])
            self.assertEqual((list(self.tmp.iterdir()), answer["log"]), ([], None))
            if answer["exit_code"]:
                self.assertRegex(answer["message"], f"cannot write '.*': File too large: the limit is {size} bytes$")
                self.assertRegex(answer["next"], "ulimit -f")
                self.assertEqual(real.snapshot(self.site), before)
        self.assertEqual(codes, {0, 5})

    def test_no_space_for_the_log(self):
        """What the compiler refused is told all the same."""
        self.behave("fail", "k.cu(3): error: no\n")
        self.behave("fill")
        code, answer = self.on_a_disk_of("1m")
        self.assertEqual(code, 6)
        self.assertIn("k.cu(3): error: no", answer["message"])

    def test_an_error_of_the_host_compiler_and_of_the_linker(self):
        (self.data / "kernels/a.c").write_text("#error no\n")
        self.refused(want=6, says="(?s)cannot build 'a.c': '/usr/bin/gcc .*#error no")
        (self.data / "kernels/a.c").write_text("void *nowhere(void);\nvoid *par_a(void) { return nowhere(); }\n")
        self.refused(want=6, says="(?s)cannot build 'libpar.so': .*undefined reference to `nowhere'")

    def test_a_header_that_is_not_in_the_list(self):
        (self.data / "kernels/more.h").write_text("")
        (self.data / "kernels/a.c").write_text('#include "more.h"\n')
        self.refused(want=6, says="(?s)cannot build 'a.c'.*more.h: No such file")

    def test_a_damaged_recipe(self):
        path = self.data / "kernels/sources.json"
        good = json.loads(path.read_text())
        for change, says in (
            ({"sources": ["../a.c"]}, "not beneath the folder"),
            ({"headers": ["/etc/passwd"]}, "not beneath the folder"),
            ({"library": "x/y"}, "not the name of a file"),
            ({"sources": [1]}, "not a string"),
            ({"architectures": []}, "architectures"),
            ({"others": [1]}, "others"),
            ({"link": []}, "no command to link"),
            ({"link": ["{cc}", "{nonsense}"]}, "{nonsense}"),
        ):
            with self.subTest(change):
                path.write_text(json.dumps(good | change))
                self.refused(want=1, says=says)
        path.write_text("{")
        self.refused(want=1, says="not valid JSON")


class Architectures(Case):
    def nvml(self, *gpus, cuda=13000, works=True, dies=False):
        """An NVML of our own, for a machine with such GPUs."""
        folder = self.folder / "driver"
        folder.mkdir(exist_ok=True)
        (folder / "nvml.c").write_text(
            "static const int gpu[][2] = {%s{0, 0}};\n" % "".join("{%d, %d}, " % divmod(gpu, 10) for gpu in gpus)
            + "int nvmlInit_v2(void) { %s return %d; }\n" % ("__builtin_trap();" * dies, 0 if works else 9)
            + "int nvmlShutdown(void) { return 0; }\n"
            + "int nvmlSystemGetCudaDriverVersion(int *v) { *v = %d; return 0; }\n" % cuda
            + "int nvmlDeviceGetCount_v2(unsigned *n) { *n = %d; return 0; }\n" % len(gpus)
            + "int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)gpu[i]; return 0; }\n"
            + "int nvmlDeviceGetCudaComputeCapability(void *d, int *a, int *b)\n"
            + "{ *a = ((int *)d)[0]; *b = ((int *)d)[1]; return 0; }\n")
        subprocess.run(["gcc", "-shared", "-fPIC", "nvml.c", "-o", "libnvidia-ml.so.1"], cwd=folder, check=True)
        return {"LD_LIBRARY_PATH": str(folder)}

    def test_the_gpus_of_this_machine(self):
        driver = self.nvml(120, 90, 120)
        answer = self.build(arch=None, **driver)
        self.assertEqual((answer["architectures"], answer["warnings"]), (["sm_90", "sm_120"], []))
        (command,) = self.compiled()
        self.assertIn("-gencode=arch=compute_90,code=sm_90 -gencode=arch=compute_120,code=sm_120", command)

    def test_no_gpu_is_not_nvccs_default(self):
        self.refused(arch=None, want=5, says="the driver sees no GPU", hints="--arch all", **self.nvml())
        self.refused(arch=None, want=5, says="no NVIDIA driver is here", hints="sm_120 RTX 5090", **self.nvml(90, works=False))
        self.assertEqual(self.compiled(), [])

    def test_a_driver_that_nobody_comes_back_from_is_asked_by_a_child(self):
        driver = self.nvml(90, dies=True)
        self.refused(arch=None, want=5, says="NVML does not say which GPUs are here: the process that asked died", hints="--arch", **driver)
        self.assertEqual(self.build("--check", arch="sm_90", **driver)["architectures"], ["sm_90"])

    def test_a_gpu_that_nvcc_does_not_know(self):
        self.refused(arch=None, want=5, says=r"nvcc 13\.0\.88 .* cannot compile for a GPU of this machine, sm_140",
                     hints="a newer nvcc", **self.nvml(90, 140))

    def test_a_driver_that_is_too_old_for_what_nvcc_makes(self):
        for arch in (None, "sm_90"):
            (warning,) = self.build("--check", arch=arch, **self.nvml(90, cuda=12080))["warnings"]
            self.assertRegex(warning, "knows CUDA 12, and what nvcc 13.0.88 makes needs CUDA 13")

    def test_an_architecture_that_nvcc_does_not_know(self):
        self.refused(arch="sm_90,sm_91", want=2, says="'sm_91'; it knows sm_75,sm_90,sm_120")
        self.refused(arch="sm_50", want=2, says="'sm_50'; it knows sm_75")  # too old for the kernels, though nvcc knows it

    def test_all(self):
        self.assertEqual(self.build(arch="all")["architectures"], ["sm_75", "sm_90", "sm_120"])


class Interpreters(Case):
    """The module is for interpreters that can load it."""

    def setUp(self):
        super().setUp()
        venv = self.folder / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        (site,) = venv.glob("lib/python*/site-packages")
        shutil.copytree(self.site, site, dirs_exist_ok=True)
        self.site = site
        self.python = venv / "bin/python-of-another-kind"

    def interpreter(self, **facts):
        """As the environment's own, but for what it says about itself."""
        facts = {"implementation": "cpython", "version": "3.14.0", "minor": 14, "free_threaded": False, "headers": False,
                 "include": "/nowhere"} | facts
        self.python.write_text("#!/bin/sh\ncase \"$*\" in *Py_GIL_DISABLED*) echo '%s'; exit;; esac\nexec '%s/python3' \"$@\"\n"
                               % (json.dumps(facts), self.python.parent))
        self.python.chmod(0o755)

    def test_the_headers_of_another_python_will_do(self):
        self.interpreter()
        answer = self.build(site=self.python, target="--python")
        self.assertTrue(self.package("_sgl_pcie.abi3.so").exists())
        self.assertNotEqual(answer["toolchain"]["python_headers"], "/nowhere")
        Build.check_record(self)

    def test_interpreters_that_cannot_load_the_module(self):
        for facts, says in (({"free_threaded": True}, "free-threaded"), ({"minor": 9}, "older than 3.10"),
                            ({"implementation": "pypy"}, "not CPython")):
            with self.subTest(says):
                self.interpreter(**facts)
                self.refused(want=5, says="nothing to build for '.*': this Python is " + says, site=self.python, target="--python")

    def test_an_environment_beneath_a_folder_of_that_name(self):
        """The interpreter of a folder of packages is looked for above the last lib/python of its path."""
        site = self.folder / "lib/python-projects/venv/lib/python3.11/site-packages"
        shutil.copytree(self.site, site)
        python = site.parents[2] / "bin/python3"
        python.parent.mkdir()
        self.interpreter(free_threaded=True)
        self.python.rename(python)
        self.refused("--check", want=5, says="free-threaded", site=site)


class Interrupted(Case):
    def test_nothing_stays_behind(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
            with self.subTest(number.name):
                self.behave("slow")
                before = real.snapshot(self.site)
                command = [real.CLI, "build", "--arch", "sm_90", "--site", self.site]
                process = subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                self.wait_for(lambda: (self.toolkit / "bin/log").exists(), "nvcc was not called")
                self.assertNotEqual(list(self.tmp.iterdir()), [])
                process.send_signal(number)
                process.communicate(timeout=10)  # the keeper of the folder holds no end of our pipes
                self.assertEqual(process.returncode, -number)
                if number != signal.SIGKILL:
                    self.assertEqual(self.compilers(), [])
                self.wait_for(lambda: not list(self.tmp.iterdir()), "the scratch folder stays")
                self.assertEqual(real.snapshot(self.site), before)
                self.assertFalse(self.tool("status")["pending"])
                (self.toolkit / "bin/log").unlink()

    def compilers(self):
        """The processes whose temporary files go into a scratch folder."""
        mark, found = b"TMPDIR=%s/" % os.fsencode(self.tmp), []
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (path / "environ").read_bytes():
                    found.append((path / "cmdline").read_bytes())
        return found

    def test_a_kill_at_any_write_of_the_transaction_leaves_old_new_or_recover(self):
        self.build()
        old = real.snapshot(self.site)
        (self.data / "kernels/a.c").write_text(SOURCES["a.c"] + "int more;\n")
        trees = []
        for call in ("renameat", "renameat2", "linkat", "unlinkat", "fsync"):
            for when in range(1, 100):
                tree = self.folder / f"{call}{when}"
                shutil.copytree(self.site, tree)
                strace = ["strace", "-o", self.folder / "trace", "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={when}"]
                done = subprocess.run([*strace, real.CLI, "build", "--quiet", "--arch", "sm_90", "--site", tree],
                                      env=self.env | {"ASAN_OPTIONS": "detect_leaks=0"}, capture_output=True, check=False)
                self.wait_for(lambda: not list(self.tmp.iterdir()), "the scratch folder stays")
                if done.returncode == 0:
                    break
                trees.append(self.settled(tree) == old)
        self.assertGreater(len(trees), 10)
        self.assertEqual(set(trees), {True, False})

    def settled(self, tree):
        """The tree after recover, where that is due; one that is new is all new."""
        status = [real.CLI, "status", "--quiet", "--site", tree]
        if subprocess.run(status, env=self.env, capture_output=True, check=False).returncode == 10:
            self.build(site=tree, want=10)
            self.tool("recover", site=tree)
        found = real.snapshot(tree)
        if found != real.snapshot(self.site):
            self.assertTrue(self.build(site=tree)["up_to_date"])
        return found

    def wait_for(self, condition, message):
        deadline = time.monotonic() + 15
        while not condition():
            if time.monotonic() > deadline:
                self.fail(message)
            time.sleep(0.02)


if __name__ == "__main__":
    unittest.main(verbosity=1)
