"""The kernels themselves, built by sgl-pcie build with the nvcc that is here: they compile, also with warnings as errors; two
builds have the same bytes; nothing is exported or named that should not be; no atomic reaches over PCIe.

Two architectures, the oldest and a middle one; with SGL_PCIE_CI=1 one more build for all that there are, with warnings as errors.
Exit status 77 without nvcc, but not with SGL_PCIE_CI=1.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "patches"), str(HERE.parent / "cli")]

import real  # noqa: E402
import schema  # noqa: E402

CI = os.environ.get("SGL_PCIE_CI") == "1"
ARCHS = "sm_75,sm_90"
COMPRESSED = "-Xfatbin=-compress-all"
RECIPE = json.loads((real.ROOT / "kernels/sources.json").read_text())
PRODUCTS = [RECIPE, *RECIPE["others"]]


def tool(command, site, *words, want=0, **env):
    done = subprocess.run([real.CLI, command, "--site", str(site), *words, "--json"], env=os.environ | env,
                          capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout)
    schema.validate(answer)
    if done.returncode != want:
        raise AssertionError(f"{command} {words}: exit {done.returncode}: {answer['message']}")
    return answer


def find_nvcc():
    """The nvcc that build finds, and the compiler that goes with it; None without."""
    with tempfile.TemporaryDirectory() as folder:
        site = real.site(real.NEWEST, folder)
        tool("apply", site)
        found = json.loads(subprocess.run([real.CLI, "build", "--site", str(site), "--arch", "sm_0", "--json"],
                                          capture_output=True, text=True, check=False).stdout)
    return found["toolchain"] if found["exit_code"] == 2 else None


def run(*words, **more):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True, **more).stdout


def strict_data(folder):
    """The data of the program, with warnings of all compilers as errors, and device code in which names can be looked for."""
    (folder / "kernels").mkdir(parents=True)
    for path in (real.ROOT / "kernels").iterdir():
        if path.name != "sources.json":
            (folder / "kernels" / path.name).symlink_to(path)
    recipe = json.loads(json.dumps(RECIPE))
    for product in (recipe, *recipe["others"]):
        for key, flag in (("compile_c", "-Werror"), ("compile_cu", "-Werror=all-warnings")):
            if key in product:
                product[key].insert(1, flag)
                product[key] = [word for word in product[key] if word != COMPRESSED]
    (folder / "kernels/sources.json").write_text(json.dumps(recipe))
    for name in ("patches", "python"):
        (folder / name).symlink_to(real.ROOT / name)
    return folder


class Kernels(real.Scratch):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.stock = real.site(real.NEWEST, cls.folder / "stock")
        cls.site = cls.folder / "site"
        shutil.copytree(cls.stock, cls.site)
        tool("apply", cls.site)
        cls.built = tool("build", cls.site, "--arch", ARCHS)

    def product(self, name):
        return self.site / "sgl_pcie" / name

    def test_everything_is_built(self):
        self.assertEqual([entry["path"].split("/")[1] for entry in self.built["outputs"]],
                         [product.get("library") or product["name"] for product in PRODUCTS])
        self.assertEqual(self.built["architectures"], ARCHS.split(","))
        self.assertLess(self.product("libpar.so").stat().st_size, 3 << 20, "device code is compressed")

    def test_nothing_warns_and_no_name_depends_on_a_path(self):
        """With warnings of all compilers as errors, which nvcc leaves a trace of in the bytes."""
        site = self.folder / "strict"
        shutil.copytree(self.stock, site)
        tool("apply", site)
        built = tool("build", site, "--arch", "all" if CI else ARCHS, SGL_PCIE_DATA=str(strict_data(self.folder / "data")))
        numbers = [int(arch[3:]) for arch in built["architectures"]]
        self.assertEqual(numbers, sorted(numbers))
        if CI:
            self.assertLessEqual({int(number) for number in RECIPE["architectures"]}, set(numbers))
        for name in ("libpar.so", "sgl-pcie-gpu"):
            path = site / "sgl_pcie" / name
            self.assertNotIn(b"_GLOBAL__N", path.read_bytes(), name)
            self.assertNotIn("_GLOBAL__N", run("nm", path))

    def test_two_more_builds_have_the_same_bytes(self):
        self.assertEqual(tool("build", self.site, "--check", "--arch", ARCHS)["outputs"], self.built["outputs"])

    def test_only_the_interface_is_exported(self):
        exported = {line.split()[-1] for line in run("nm", "-D", "--defined-only", self.product("libpar.so")).splitlines()}
        header = (real.ROOT / "kernels/pcie_allreduce.h").read_text()
        declared = set(re.findall(r"(?m)^PAR_API[^;(]*?(par_\w+)\(", header))
        self.assertEqual(exported, declared)
        module = {line.split()[-1] for line in run("nm", "-D", "--defined-only", self.product("_sgl_pcie.abi3.so")).splitlines()}
        self.assertEqual(module, {"PyInit__sgl_pcie"})

    def test_nothing_is_needed_but_the_c_library(self):
        for name, more in (("libpar.so", set()), ("sgl-pcie-gpu", {"libpar.so"}), ("_sgl_pcie.abi3.so", set())):
            needed = set(re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", self.product(name))))
            others = {library for library in needed if not re.match(r"(lib(c|m|dl|rt|pthread)|ld-linux.*)\.so", library)}
            self.assertEqual(others, more, name)

    def test_the_library_and_the_program_start_without_a_driver(self):
        code = ("import ctypes, sys; library = ctypes.CDLL(sys.argv[1]); library.par_version.restype = ctypes.c_char_p; "
                "print(library.par_version().decode())")
        version = run("/usr/bin/python3", "-c", code, self.product("libpar.so")).strip()
        self.assertRegex(version, r"^\d+\.\d+")
        self.assertIn(version, run(self.product("sgl-pcie-gpu"), "--version"))

    def test_the_module_loads(self):
        run(sys.executable, "-I", "-c", "import sys; sys.path.insert(0, sys.argv[1]); import _sgl_pcie", self.product(""))

    def test_revert_leaves_no_trace(self):
        site = self.folder / "reverted"
        shutil.copytree(self.site, site)
        tool("revert", site)
        self.assertEqual(real.snapshot(site), real.snapshot(self.stock))


REMOTE_ATOMIC = re.compile(r"^\s*(?:@\S+\s+)?(?:atom|red|multimem)\S*\.sys\b.*$", re.M)


class Atomics(unittest.TestCase):
    """A read-modify-write at system scope may go over PCIe, where not every machine carries it out as one."""

    def ptx(self, source, arch, *flags):
        command = [TOOLCHAIN["nvcc"], "-ccbin", TOOLCHAIN["cc"], "-ptx", "-std=c++17", "-O3", "-I..",
                   f"-arch=compute_{arch}", *flags, source, "-o", "-"]
        return run(*command, cwd=real.ROOT / "kernels")

    def test_no_atomic_of_the_kernels_has_system_scope(self):
        for arch in (75, 90):
            for source in [name for product in PRODUCTS for name in product.get("kernels", [])]:
                text = self.ptx(source, arch)
                self.assertIn(".entry", text)
                self.assertEqual(REMOTE_ATOMIC.findall(text), [], source)
                if source == "device.cu":
                    self.assertIn("ld.relaxed.sys", text)  # this is the code that is meant

    def test_one_would_be_seen(self):
        with tempfile.NamedTemporaryFile("w", suffix=".cu") as file:
            file.write('extern "C" __global__ void a(int *p) { atomicAdd_system(p, 1); }\n'
                       'extern "C" __global__ void b(int *p, int *q) { *q = atomicExch_system(p, 1); }\n'
                       'extern "C" __global__ void c(int *p) { if (*p) asm volatile("red.relaxed.sys.add.u32 [%0], 1;" :: "l"(p)); }\n')
            file.flush()
            self.assertGreaterEqual(len(REMOTE_ATOMIC.findall(self.ptx(file.name, 75))), 3)


if __name__ == "__main__":
    TOOLCHAIN = find_nvcc()
    if TOOLCHAIN is None and not CI:
        print("no nvcc here")
        sys.exit(77)
    unittest.main(verbosity=2)
