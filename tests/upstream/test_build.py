"""`sgl-pcie build --upstream`: what it says before it compiles anything, and with the nvcc that is here what it builds.

The checkout is a repository with vLLM's text in the place of SGLang's (tests/patches/source.py); the install a released
wheel. Exit status 77 without nvcc once the rest has passed, but not with SGL_PCIE_CI=1.
"""

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / name) for name in ("patches", "cli")]

import real  # noqa: E402
import recipe  # noqa: E402
import schema  # noqa: E402
import source  # noqa: E402

from jsonschema import Draft202012Validator  # noqa: E402

NVCC = shutil.which("nvcc") or (os.path.exists("/usr/local/cuda/bin/nvcc") and "/usr/local/cuda/bin/nvcc")
EXPORTED = {
    "upstream_" + name
    for name in (
        "abi last_error meta_size init_custom_ar dispose register_buffer all_reduce get_graph_buffer_ipc_meta "
        "register_graph_buffers"
    ).split()
}
# upstream-probe without GPUs: says what it is told to.
PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    const char *code = getenv("PROBE_CODE"), *text = getenv("PROBE_TEXT");
    FILE *log = fopen(getenv("PROBE_LOG"), "w");
    for (int i = 1; i < argc; i++)
        fprintf(log, "%s\\n", argv[i]);
    fclose(log);
    puts(text);
    return atoi(code);
}
"""


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.fixture = Path(scratch.name).resolve()
        cls.data = source.data(cls.fixture / "data")
        source.make(cls.fixture / "checkout")
        real.site(real.NEWEST, cls.fixture / "site")

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name).resolve()
        self.checkout, self.site = self.folder / "checkout", self.folder / "site"
        shutil.copytree(self.fixture / "checkout", self.checkout, symlinks=True)
        shutil.copytree(self.fixture / "site", self.site)
        self.text = self.checkout / source.OLD
        (self.folder / "tmp").mkdir()
        self.env = dict(os.environ, TMPDIR=str(self.folder / "tmp"), SGL_PCIE_STATE=str(self.folder / "state"))
        for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "NVCC_CCBIN"):
            self.env.pop(name, None)

    def tool(self, *words, want=0, **env):
        code, answer = real.ask(*words, data=self.data, env=self.env | env)
        schema.validate(answer)
        self.assertEqual(code, want, answer["message"])
        return answer

    def patch(self):
        self.tool("apply", "--source", self.checkout, "--set", "sgl-kernel")

    def build(self, *words, want=0, **env):
        return self.tool("build", "--upstream", "--source", self.checkout, *words, want=want, **env)

    def assertNothingCompiled(self, answer):
        """It stopped before the first compiler, and left nothing."""
        self.assertIsNone(answer["log"])
        self.assertIsNone(answer["outputs"])
        self.assertEqual(os.listdir(self.folder / "tmp"), [])
        self.assertFalse((self.site / "sgl_pcie" / "libupstream.so").exists())

    # ---- a toolkit and a driver that are not there ----

    def toolkit(self):
        toolkit = self.folder / "toolkit"
        for name in ("bin", "include", "lib"):
            (toolkit / name).mkdir(parents=True)
        shutil.copy(HERE.parent / "build/nvcc", toolkit / "bin/nvcc")
        (toolkit / "include/cuda_runtime_api.h").write_text("")
        (toolkit / "empty.c").write_text("")
        subprocess.run(["gcc", "-c", "empty.c", "-o", "empty.o"], cwd=toolkit, check=True)
        subprocess.run(["ar", "crD", "lib/libcudart_static.a", "empty.o"], cwd=toolkit, check=True)
        return toolkit

    def with_gpus(self, *capabilities):
        """Environment for a machine with such GPUs."""
        toolkit = self.toolkit()
        folder = self.folder / "driver"
        folder.mkdir()
        (folder / "nvml.c").write_text(
            '#include "%s"\n' % (HERE.parent / "verdict/fake_nvml.c")
            + "static int gpu[] = {%s};\n" % ", ".join(map(str, [*capabilities, 0]))
            + "int nvmlSystemGetCudaDriverVersion(int *v) { *v = 13000; return 0; }\n"
            + "int nvmlDeviceGetCudaComputeCapability(void *d, int *a, int *b)\n"
            + "{ *a = gpu[(uintptr_t)d - 1] / 10; *b = gpu[(uintptr_t)d - 1] % 10; return 0; }\n"
        )
        subprocess.run(["gcc", "-shared", "-fPIC", "nvml.c", "-o", "libnvidia-ml.so.1"], cwd=folder, check=True)
        names = ",".join("GPU-%d" % (i + 1) for i in range(len(capabilities)))
        return {"LD_LIBRARY_PATH": str(folder), "SGL_PCIE_NVCC": str(toolkit / "bin/nvcc"), "FAKE_GPUS": names}


class Refused(Case):
    def test_arguments(self):
        for words in (
            ["--upstream"],
            ["--probe"],
            ["--upstream", "--world", "4", "--source", self.checkout],
            ["--upstream", "--probe", "--check", "--source", self.checkout],
            ["--upstream", "--probe", "--world", "3", "--source", self.checkout],
            ["--upstream", "--probe", "--world", "10", "--source", self.checkout],
            ["--upstream", "--probe", "--bytes", "0x10", "--source", self.checkout],
            ["--upstream", "--source", self.folder / "nowhere"],
            ["--upstream", "--source", self.checkout, "--site", self.site, "--python", sys.executable],
        ):
            with self.subTest(words):
                self.patch() if "--python" in words else None
                self.assertNothingCompiled(self.tool("build", *words, want=2))

    def test_an_unknown_text(self):
        self.text.write_text("int main;\n")
        source.commit(self.checkout)
        answer = self.build("--site", self.site, want=3)
        self.assertIn("custom_all_reduce.cuh", answer["message"])
        self.assertNothingCompiled(answer)

    def test_a_text_that_was_edited(self):
        self.text.write_text(self.text.read_text() + "// mine\n")
        answer = self.build("--site", self.site, want=self.tool_code("apply"))
        self.assertIn(answer["exit_code"], (3, 4))
        self.assertNothingCompiled(answer)

    def tool_code(self, command):
        """What apply says about the same checkout: the two must not differ."""
        return real.ask(command, "--source", self.checkout, "--set", "sgl-kernel", data=self.data, env=self.env)[0]

    def test_no_text(self):
        self.text.unlink()
        answer = self.build("--site", self.site, want=self.tool_code("apply"))
        self.assertIn(answer["exit_code"], (3, 4))
        self.assertNothingCompiled(answer)

    def test_not_patched(self):
        answer = self.build("--site", self.site, want=5)
        self.assertIn("not patched", answer["message"])
        self.assertEqual(answer["next"], "sgl-pcie apply --set sgl-kernel --source %s" % self.checkout)
        self.assertNothingCompiled(answer)
        self.assertNothingCompiled(self.build("--probe", want=5))

    def test_an_install_that_is_not_patched(self):
        self.patch()
        answer = self.build("--site", self.site, "--arch", "sm_90", want=5)
        self.assertEqual(answer["next"], "sgl-pcie apply --site %s" % self.site)
        self.assertEqual(answer["upstream"]["released"], source.PRE)
        self.assertNothingCompiled(answer)

    def test_an_install_that_nobody_named(self):
        """Here python3 has no SGLang; the checkout was named, and is not the install."""
        self.patch()
        answer = self.build("--arch", "sm_90", want=2)
        self.assertIn("cannot tell which SGLang it is for: no SGLang found", answer["message"])
        self.assertEqual(answer["next"], "sgl-pcie build --upstream --python PATH --source %s" % self.checkout)
        self.assertNothingCompiled(answer)

    def test_what_comes_after_apply_works(self):
        """It needs no install; only a toolkit, and GPUs."""
        for target in (("--source", self.checkout), ("--site", self.checkout / "python")):
            answer = self.tool("apply", *target, "--set", "sgl-kernel")
            self.assertEqual(answer["next"], "sgl-pcie build --upstream --probe --source %s" % self.checkout)
            self.assertEqual(self.tool("status", *target)["next"], answer["next"])
            answer = self.tool(*answer["next"].split()[1:], want=5, SGL_PCIE_NVCC="nowhere")
            self.assertIn("SGL_PCIE_NVCC", answer["message"])
            self.tool("revert", *target)

    def test_no_nvcc(self):
        self.patch()
        self.tool("apply", "--site", self.site)
        for words in (["--site", self.site], ["--probe"]):
            answer = self.build(*words, "--arch", "sm_90", want=5, SGL_PCIE_NVCC="nowhere")
            self.assertIn("SGL_PCIE_NVCC", answer["message"])
            self.assertNothingCompiled(answer)

    def test_wrong_compiler(self):
        toolkit = self.toolkit()
        (toolkit / "bin/refuse").write_text("gcc\n")
        self.patch()
        self.tool("apply", "--site", self.site)
        for words in (["--site", self.site], ["--probe"]):
            env = {"SGL_PCIE_NVCC": str(toolkit / "bin/nvcc"), "NVCC_CCBIN": "/usr/bin/gcc"}
            answer = self.build(*words, "--arch", "sm_90", want=6, **env)
            self.assertIn("unsupported GNU version", answer["message"])
            self.assertNothingCompiled(answer)

    def test_no_gpu_to_probe_on(self):
        self.patch()
        answer = self.build("--probe", "--arch", "sm_90", want=5, **self.with_gpus())
        self.assertIn("nothing to probe on", answer["message"])
        self.assertNothingCompiled(answer)


class Probed(Case):
    """What is made of the program's word; the program is a stand-in, and so are the kernels."""

    def setUp(self):
        super().setUp()
        data = self.folder / "data"
        shutil.copytree(type(self).data, data, symlinks=True)
        (data / "kernels").unlink()
        kernels = data / "kernels"
        shutil.copytree(real.ROOT / "kernels/upstream", kernels / "upstream")
        recipe = json.loads((real.ROOT / "kernels/sources.json").read_text())
        recipe.update(sources=["a.c"], kernels=[], headers=[], others=[])
        (kernels / "a.c").write_text("int par_a(void);\nint par_a(void)\n{\n    return 0;\n}\n")
        shutil.copy(real.ROOT / "kernels/libpar.map", kernels)
        (kernels / "sources.json").write_text(json.dumps(recipe))
        probe = json.loads((kernels / "upstream/probe.json").read_text())
        probe.update(sources=["upstream/probe.c"], kernels=[], headers=[])
        (kernels / "upstream/probe.json").write_text(json.dumps(probe))
        (kernels / "upstream/probe.c").write_text(PROGRAM)
        (kernels / "upstream/overlay.cu").write_text("int upstream_abi(void) { return 1; }\n")
        self.data = data
        self.gpus = self.with_gpus(90, 90)

    def probe(self, *words, code=0, want=0, **says):
        self.patch()
        rivals = [
            {"algorithm": a, "name": n, "us": us, "why": why, "wrong": wrong}
            for n, a, us, why, wrong in says.pop(
                "rivals",
                [
                    ("nccl", "2.28.9", 20.0, None, 0),
                    ("one-stage", None, 9.5, None, 0),
                    ("two-stage", None, 12.0, None, 0),
                    ("ours", "push-one-shot", 8.0, None, 0),
                ],
            )
        ]
        text = dict(
            bytes=43008, calls=50, code=code, elements=1000, gpus=["GPU-1", "GPU-2"], message=None, mode="process",
            refusal="no kernel", rivals=rivals, seconds=2.0, untouched=0, winner="ours", world=2, wrong=0,
        )  # fmt: skip
        text.update(says)
        log = self.folder / "log"
        env = self.gpus | {"PROBE_CODE": str(code), "PROBE_TEXT": json.dumps(text), "PROBE_LOG": str(log)}
        answer = self.build("--probe", *words, want=want, **env)
        self.asked = log.read_text().splitlines()
        self.assertEqual(os.listdir(self.folder / "tmp"), [])
        return answer

    def test_ours_wins(self):
        answer = self.probe()
        self.assertIn("ours wins", answer["message"])
        self.assertIsNone(answer["next"])
        self.assertEqual(answer["probe"]["found"]["rivals"][0]["us"], 20.0)
        self.assertRegex(answer["probe"]["library"], "^[0-9a-f]{64}$")
        self.assertIsNone(answer["probe"]["verdict"])

    def test_upstream_wins(self):
        answer = self.probe(winner="one-stage")
        self.assertIn("one-stage", answer["message"])
        self.assertEqual(answer["next"], "sgl-pcie build --upstream --python PATH --source %s" % self.checkout)
        answer = self.probe("--site", self.site, winner="one-stage")
        self.assertEqual(answer["next"], "sgl-pcie build --upstream --site %s --source %s" % (self.site, self.checkout))

    def test_virtual_ranks_choose_nothing(self):
        answer = self.probe("--virtual", "--world", "4", mode="virtual", winner="one-stage", world=4)
        self.assertIsNone(answer["next"])
        self.assertEqual(self.asked[:2], ["--world=4", "--virtual"])

    def test_arguments_reach_the_program(self):
        self.probe("--world", "2", "--bytes", "65536")
        self.assertEqual(self.asked[:2], ["--world=2", "--bytes=65536"])

    def test_failures(self):
        for code, word in ((7, "wrong sums"), (8, "hangs"), (1, "fails"), (5, "could not run")):
            with self.subTest(code):
                self.setUp()
                answer = self.probe(code=code, want=code, message="rank 1 says so", winner=None)
                self.assertIn(word, answer["message"])
                self.assertIn("rank 1 says so", answer["message"])

    def bound(self, *words):
        env = self.env | self.gpus
        words = [os.environ["VERDICT_BOUND"], *words]
        return subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout

    def verify(self):
        """A verdict as of level 3, for push and pull on both GPUs."""
        gpus = ["GPU-1", "GPU-2"]
        verdict = {
            "schema": "sgl-pcie-verdict/1",
            "level": 3,
            "bound": json.loads(self.bound(self.site, "")),
            "results": [{"backend": b, "world": 2, "gpus": gpus, "result": "PASS"} for b in ("push", "pull")],
            "pairs": [{"backend": b, "gpus": gpus, "failed": []} for b in ("push", "pull")],
        }
        file = self.folder / "verdict"
        file.write_text(json.dumps(verdict))
        return Path(self.bound("write", "verdict.json", file, self.site).strip())

    def test_the_verdict_learns_of_it(self):
        """And only what has a GPU a rank is told to it."""
        self.tool("apply", "--site", self.site)
        for name in ("libpar.so", "sgl-pcie-gpu"):
            (self.site / "sgl_pcie" / name).write_text(name)
        for code, result in ((0, "PASS"), (7, "FAIL"), (8, "FAIL")):
            with self.subTest(code):
                path = self.verify()
                answer = self.probe("--site", self.site, code=code, want=code, message="so it is" if code else None)
                self.assertEqual((answer["probe"]["verdict"], answer["probe"]["not_recorded"]), (str(path), None))
                results = json.loads(path.read_text())["results"]
                (found,) = [one for one in results if one["backend"] == "upstream"]
                self.assertEqual((found["result"], found["world"], found["gpus"]), (result, 2, ["GPU-1", "GPU-2"]))
                self.assertEqual(found["library"], answer["probe"]["library"])
                self.assertEqual("so it is" in found.get("reason", ""), code != 0)
                self.assertEqual(len(results), 3, "the others stay")
        path = self.verify()
        self.assertIsNone(self.probe("--site", self.site, mode="virtual")["probe"]["verdict"])
        self.assertEqual(len(json.loads(path.read_text())["results"]), 2)

    def test_no_verdict_to_add_to(self):
        self.tool("apply", "--site", self.site)
        answer = self.probe("--site", self.site)
        self.assertIn("sgl-pcie verify --site '%s'" % self.site, answer["probe"]["not_recorded"])
        self.assertIsNone(answer["probe"]["verdict"])
        self.assertFalse((self.site / "sgl_pcie/libupstream.so").exists(), "a probe installs nothing")


    def test_what_the_install_has_is_not_built_again(self):
        """By its record, from the same inputs, by the same commands and compilers, and with the bytes that it names."""
        self.patch()
        self.tool("apply", "--site", self.site)

        def both():
            for words in ([], ["--upstream", "--source", self.checkout]):
                self.tool("build", *words, "--site", self.site, "--arch", "sm_90", **self.gpus)

        def reused():
            answer = self.probe("--site", self.site)["probe"]
            self.assertRegex(answer["library"], "^[0-9a-f]{64}$")
            return answer["reused"], answer["library"]

        none, library = reused()
        self.assertEqual(none, [])
        self.tool("build", "--site", self.site, "--arch", "sm_90", **self.gpus)
        self.assertEqual(reused(), (["libpar.so"], library))
        both()
        self.assertEqual(reused(), (["libpar.so", "libupstream.so"], library))
        log = self.folder / "toolkit/bin/log"
        log.unlink(missing_ok=True)
        reused()
        self.assertNotIn("overlay.cu", log.read_text() if log.exists() else "")
        self.assertEqual(self.probe()["probe"]["reused"], [], "no install, nothing to take from it")
        self.assertEqual(self.probe("--site", self.site, "--arch", "sm_75,sm_90")["probe"]["reused"], [])

        def source_changed():
            with open(self.data / "kernels/a.c", "a") as file:
                file.write("/* changed */\n")

        def library_changed():
            with open(self.site / "sgl_pcie/libupstream.so", "ab") as file:
                file.write(b"x")

        def record_damaged():
            (self.site / "sgl_pcie/build.json").write_text("{")

        def compiler_changed():
            (self.folder / "toolkit/bin/version").write_text("13.0.89")

        for change, left in (
            (source_changed, ["libupstream.so"]),
            (library_changed, ["libpar.so"]),
            (record_damaged, ["libupstream.so"]),
            (compiler_changed, []),
        ):
            with self.subTest(change.__name__):
                both()
                self.assertEqual(reused()[0], ["libpar.so", "libupstream.so"])
                change()
                self.assertEqual(reused()[0], left)


@unittest.skipUnless(NVCC, "no nvcc")
class Built(Case):
    def setUp(self):
        super().setUp()
        self.before = real.snapshot(self.site)
        self.patch()
        self.tool("apply", "--site", self.site)

    def test_library(self):
        answer = self.build("--site", self.site, "--arch", "sm_80,sm_90")
        library, record = self.site / "sgl_pcie/libupstream.so", self.site / "sgl_pcie/upstream.json"
        self.assertEqual([output["path"] for output in answer["outputs"]], ["sgl_pcie/libupstream.so"])
        self.check_record(json.loads(record.read_text()))
        self.check_library(library)
        listed = next(self.site.glob("sgl_pcie_runtime-*.dist-info")).joinpath("RECORD").read_text()
        self.assertIn("sgl_pcie/libupstream.so,sha256=", listed)
        self.assertIn("sgl_pcie/upstream.json,sha256=", listed)
        self.assertTrue(self.build("--site", self.site, "--arch", "sm_80,sm_90")["up_to_date"])
        self.build("--site", self.site, "--arch", "sm_80,sm_90", "--check")
        self.tool("revert", "--site", self.site)
        self.assertEqual(real.differences(self.before, real.snapshot(self.site)), set())
        self.tool("revert", "--source", self.checkout)
        self.assertEqual(self.text.read_bytes(), source.text())
        self.assertEqual(source.git(self.checkout, "status", "--porcelain"), "")

    def check_record(self, record):
        name = real.ROOT / "docs/json-schema/build-record.schema.json"
        Draft202012Validator(json.loads(name.read_text())).validate(record)
        self.assertEqual(record["text"]["released"], source.PRE)
        self.assertEqual(record["text"]["patched"], real.blob_id(self.text.read_bytes()))
        self.assertNotIn(str(self.folder), json.dumps(record))

    def check_library(self, path):
        def lines(*words):
            return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()

        self.assertEqual({line.split()[-1] for line in lines("nm", "-D", "--defined-only", str(path))}, EXPORTED)
        dynamic = lines("readelf", "-d", str(path))
        needed = {line.partition("[")[2].rstrip("]") for line in dynamic if "(NEEDED)" in line}
        allowed = {"libstdc++.so.6", "libgcc_s.so.1", "libm.so.6", "libc.so.6", "ld-linux-x86-64.so.2"}
        self.assertLessEqual(needed, allowed, "neither torch nor the toolkit")
        self.assertTrue(any("SYMBOLIC" in line for line in dynamic), "names are bound within")
        self.assertFalse(any("GLOBAL__N" in line for line in lines("nm", str(path))), "no anonymous namespaces")
        native = ctypes.CDLL(str(path))
        native.upstream_init_custom_ar.restype = ctypes.c_void_p
        native.upstream_last_error.restype = ctypes.c_char_p
        native.upstream_meta_size.restype = ctypes.c_int64
        self.assertEqual(native.upstream_meta_size(), 3456)
        if not os.path.exists("/dev/nvidia0"):
            handle = native.upstream_init_custom_ar(0, None, 4, 0, None, ctypes.c_size_t(0), 0)
            self.assertIsNone(handle, "no exception passes the interface")
            self.assertIn(b"cudaGetDevice", native.upstream_last_error())

    @unittest.skipUnless(os.environ.get("SP_LIBPAR"), "no libpar.so here")
    def test_the_probe_needs_what_its_recipe_lists(self):
        """And nothing else; libpar.so is the one that is here, since the probe's own takes a minute to compile."""
        kernels, out = self.folder / "kernels", self.folder / "out"
        for name in ("upstream/overlay.json", "upstream/probe.json"):
            made = json.loads((real.ROOT / "kernels" / name).read_text())
            for key in ("sources", "kernels", "headers", "files"):
                for file in made.get(key, ()):
                    (kernels / file).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(real.ROOT / "kernels" / file, kernels / file)
        (kernels / "upstream/text").mkdir()
        shutil.copy(self.text, kernels / "upstream/text")
        out.mkdir()
        shutil.copy(os.environ["SP_LIBPAR"], out / "libpar.so")
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(kernels)
        for name in ("overlay", "probe"):
            recipe.build(json.loads((real.ROOT / "kernels/upstream" / (name + ".json")).read_text()), ["90"])
        if not os.path.exists("/dev/nvidia0"):
            done = subprocess.run([out / "upstream-probe"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 5, done.stderr)
            self.assertIn("no usable GPU", json.loads(done.stdout)["message"])

    def test_built_again_from_another_text(self):
        """What is built beside ours, and ours beside it, stay."""
        self.build("--site", self.site, "--arch", "sm_90")
        before = (self.site / "sgl_pcie/libupstream.so").read_bytes()
        self.assertEqual(self.build("--site", self.site, "--arch", "sm_80")["up_to_date"], False)
        self.assertNotEqual((self.site / "sgl_pcie/libupstream.so").read_bytes(), before)
        self.assertFalse((self.site / "sgl_pcie/build.json").exists())


if __name__ == "__main__":
    program = unittest.main(exit=False)
    if program.result.wasSuccessful() and not NVCC and os.environ.get("SGL_PCIE_CI") != "1":
        sys.exit(77)
    sys.exit(not program.result.wasSuccessful())
