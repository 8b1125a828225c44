"""What the set sgl-kernel inserts, compiled and run without a GPU: which kernel is chosen for how many bytes, and what is an error.

Exit status 77 without nvcc, but not with SGL_PCIE_CI=1.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import real
import source

NVCC = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
NONE = str(2**64 - 1)
PROGRAM = r"""
#include "custom_all_reduce.cuh"
#include <cstdio>
template void vllm::CustomAllreduce::allreduce<float>(cudaStream_t, float*, float*, int, int, int);
int main(int count, char** words) {
  vllm::Signal* signals[8] = {};
  try {
    vllm::CustomAllreduce reduce(signals, nullptr, 0, 0, 4, false);
    std::printf("%zu,%zu", reduce.sgl_pcie_limits_[0], reduce.sgl_pcie_limits_[1]);
    for (int i = 1; i < count; i++)
      std::printf(" %s", reduce.sgl_pcie_one_stage(std::stoull(words[i])) ? "one" : "two");
  } catch (const std::runtime_error& error) {
    std::printf(" %s", error.what());
    return 1;
  }
}
"""


class Limits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        checkout, work = source.make(Path(folder.name, "checkout"), repository=False), Path(folder.name)
        code, answer = real.ask("apply", "--source", checkout, "--set", "sgl-kernel", data=source.data(work / "data"))
        if code:
            raise AssertionError(answer)
        (work / "main.cu").write_text(PROGRAM)
        cls.program = work / "limits"
        command = [NVCC, "-std=c++17", "-arch=sm_90", "-I", (checkout / source.OLD).parent, "-o", cls.program]
        subprocess.run([*command, work / "main.cu"], check=True)

    def ask(self, limits, *sizes):
        """(exit status, standard output)"""
        env = {name: value for name, value in os.environ.items() if name != "SGLANG_PCIE_UPSTREAM_LIMITS"}
        if limits is not None:
            env["SGLANG_PCIE_UPSTREAM_LIMITS"] = limits
        done = subprocess.run([self.program, *map(str, sizes)], env=env, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    def test_by_default(self):
        self.assertEqual(self.ask(None, 16, 65536, 65552, 2**40), (0, "65536,%s one one two two" % NONE))

    def test_as_it_says(self):
        self.assertEqual(self.ask("0,4096", 16, 4096), (0, "0,4096 two two"))
        self.assertEqual(self.ask("4096,0", 16, 4096), (0, "4096,0 one one"))
        self.assertEqual(self.ask("%s,0" % NONE, 2**40), (0, "%s,0 one" % NONE))

    def test_no_kernel_is_an_error(self):
        text = " custom allreduce: no kernel for %d bytes on 4 GPUs without full NVLink: SGLANG_PCIE_UPSTREAM_LIMITS is %s"
        for limits, size in (("0,0", 16), ("16,64", 80), ("64,16", 80)):
            self.assertEqual(self.ask(limits, size), (1, limits + text % (size, limits)))

    def test_anything_else_is_an_error(self):
        for limits in ("", "1", "1,", ",1", "1,2,3", "1;2", "-1,2", "1, 2", " 1,2", "1K,2K", "0x10,1", "1,2\n"):
            with self.subTest(limits):
                said = " SGLANG_PCIE_UPSTREAM_LIMITS should be two numbers of bytes, ONE,TWO; it is: "
                self.assertEqual(self.ask(limits, 16), (1, said + limits))


if __name__ == "__main__":
    if NVCC is None and os.environ.get("SGL_PCIE_CI") != "1":
        print("no nvcc")
        sys.exit(77)
    unittest.main()
