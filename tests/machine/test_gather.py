"""Reading a machine: a made-up /sys and /proc, and drivers of our own in place of NVML and CUDA."""

import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "cli")]

import schema  # noqa: E402

CLI, TREE = os.environ["SGL_PCIE"], os.environ["GATHER_TREE"]
FULL, MINIMAL = os.environ["FAKE_DRIVER"], os.environ["FAKE_MINIMAL_DRIVER"]


def config(*capabilities, size=4096):
    """Configuration space with these extended capabilities: (offset, id, control word) in the order of their chain."""
    data = bytearray(4096)
    for number, (offset, identity, control) in enumerate(capabilities):
        following = capabilities[number + 1][0] if number + 1 < len(capabilities) else 0
        struct.pack_into("<IHH", data, offset, identity | 1 << 16 | following << 20, 0x5F, control)
    return bytes(data[:size])


class Sysfs:
    def __init__(self, root):
        self.root = Path(root)
        (self.root / "sys/bus/pci/devices").mkdir(parents=True)

    def write(self, path, text):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def device(self, path, group=None, group_type=None, **files):
        folder = f"sys/devices/{path}"
        for name, text in files.items():
            self.write(f"{folder}/{name}", text)
        link = self.root / "sys/bus/pci/devices" / os.path.basename(path)
        link.symlink_to(self.root / folder)
        if group:
            self.write(f"sys/kernel/iommu_groups/{group}/type", f"{group_type}\n")
            (self.root / folder / "iommu_group").symlink_to(self.root / f"sys/kernel/iommu_groups/{group}")


class Tree(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.fs = Sysfs(scratch.name)

    def gather(self):
        done = subprocess.run([TREE, str(self.fs.root)], capture_output=True, text=True, check=True)
        data = json.loads(done.stdout)
        schema.validator("recording.json").validate(data)
        return data

    def link(self, speed, width, most, wide):
        return {
            "current_link_speed": speed + "\n",
            "current_link_width": f"{width}\n",
            "max_link_speed": most + "\n",
            "max_link_width": f"{wide}\n",
        }

    def test_an_empty_machine_is_a_recording_too(self):
        data = self.gather()
        self.assertEqual(data["gpus"], [])
        self.assertEqual(data["machine"], {})

    def test_tree_links_bars_groups_and_acs(self):
        gpu = {"vendor": "0x10de\n", "device": "0x2bb1\n", "class": "0x030000\n", "numa_node": "1\n"}
        bars = "0x1 0x2 0x0\n0x380000000000 0x381fffffffff 0x14220c\n"
        port = config((0x100, 1, 0), (0x2A0, 0x0D, 0x1D))
        self.fs.device("pci0000:80/0000:80:01.1", vendor="0x1022\n", device="0x14ab\n", **{"class": "0x060400\n"},
                       config=port, **self.link("32.0 GT/s PCIe", 16, "32.0 GT/s PCIe", 16))  # fmt: skip
        self.fs.device("pci0000:80/0000:80:01.1/0000:81:00.0", group="7", group_type="DMA-FQ", resource=bars,
                       config=config((0x100, 1, 0)), **gpu, **self.link("2.5 GT/s", 16, "32.0 GT/s PCIe", 16))  # fmt: skip
        self.fs.device("pci10000:00/10000:00:00.0/10000:01:00.0", config=b"x" * 64, **gpu,
                       **self.link("Unknown", 255, "16 GT/s", 16))  # fmt: skip
        port_read, gpu_read, other_port, other = self.gather()["pci"]
        self.assertEqual((port_read["parent"], port_read["acs"], port_read["acs_offset"]), ("pci0000:80", "0x001d", "0x02a0"))
        self.assertEqual(gpu_read["parent"], "0000:80:01.1")
        self.assertEqual((gpu_read["speed"], gpu_read["max_speed"], gpu_read["width"]), (2.5, 32.0, 16))
        self.assertEqual(gpu_read["bar1"], 128 << 30)
        self.assertEqual((gpu_read["group"], gpu_read["group_type"], gpu_read["acs"]), (7, "DMA-FQ", "none"))
        self.assertEqual(other_port["bdf"], "10000:00:00.0")
        self.assertNotIn("acs", other)  # 64 bytes only: not readable is not "none"
        self.assertNotIn("speed", other)
        self.assertNotIn("width", other)
        self.assertEqual(other["max_speed"], 16.0)

    def test_a_chain_of_capabilities_that_goes_round_ends(self):
        gpu = {"vendor": "0x10de\n", "class": "0x030200\n"}
        loop = config((0x100, 1, 0), (0x200, 2, 0), (0x100, 1, 0))
        self.fs.device("pci0000:00/0000:00:01.0", config=loop, **gpu)
        self.fs.device("pci0000:00/0000:00:02.0", config=b"\xff" * 4096, **gpu)
        self.assertEqual([pci["acs"] for pci in self.gather()["pci"]], ["none", "none"])

    def test_machine(self):
        self.fs.write("proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
                      "model name\t: Intel(R) Xeon(R)\nflags\t\t: fpu hypervisor vme\n\nprocessor\t: 1\n")  # fmt: skip
        self.fs.write("proc/cmdline", "root=/dev/sda1 hostname=secret iommu=pt pcie_port_pm=off pci=noaer quiet\n")
        self.fs.write("etc/os-release", 'NAME="Rocky"\nID="rocky"\nID_LIKE="rhel centos fedora"\n')
        self.fs.write("sys/class/iommu/dmar0/x", "")
        self.fs.write("sys/module/nvidia/version", "595.58.03\n")
        self.fs.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.58.03\n")
        self.fs.write("proc/driver/nvidia/params", 'EnableMSI: 1\nRegistryDwords: "ForceP2P=0x11"\nX: 0\n')
        for node, cpus in ((0, "0-3"), (1, "4-7"), (10, "8-11")):
            self.fs.write(f"sys/devices/system/node/node{node}/cpulist", cpus + "\n")
            first = cpus.split("-")[0]
            self.fs.write(f"sys/devices/system/cpu/cpu{first}/topology/physical_package_id", f"{int(node == 10)}\n")
        data = self.gather()
        machine = data["machine"]
        self.assertEqual((machine["cpu_vendor"], machine["family"], machine["model"]), ("GenuineIntel", 6, 143))
        self.assertTrue(machine["hypervisor"])
        self.assertEqual(machine["options"], "iommu=pt pcie_port_pm=off pci=noaer")
        self.assertEqual((machine["distribution"], machine["distribution_like"]), ("rocky", "rhel centos fedora"))
        self.assertEqual(machine["iommu_units"], 1)
        self.assertEqual(data["driver"], {"version": "595.58.03", "module": "open", "registry": "ForceP2P=0x11"})
        self.assertEqual([(n["node"], n["socket"]) for n in data["nodes"]], [(0, 0), (1, 0), (10, 1)])


class Drivers(unittest.TestCase):
    def verify(self, *arguments, driver=FULL, **environment):
        env = {key: value for key, value in os.environ.items() if not key.startswith("CUDA")}
        env |= {"LD_LIBRARY_PATH": driver, "FAKE_CUDA": "yes"} | environment
        done = subprocess.run([CLI, "verify", "--level", "1", "--json", *arguments], env=env, capture_output=True,
                              text=True, check=False, timeout=60)  # fmt: skip
        self.assertEqual(done.stderr, "")
        data = json.loads(done.stdout)
        schema.validate(data)
        self.assertEqual(done.returncode, data["exit_code"])
        return data

    def check(self, data, name):
        (found,) = [check for check in data["checks"] if check["id"] == name]
        return found

    def ids(self, data):
        return {finding["id"] for finding in data["findings"]}

    def test_two_gpus_pass(self):
        data = self.verify()
        self.assertEqual(data["exit_code"], 0, data["message"])
        self.assertEqual([gpu["bdf"] for gpu in data["gpus"]], ["0000:80:00.0", "0000:90:00.0"])
        self.assertEqual(self.check(data, "grant.driver")["actual"], "595.58.03")
        self.assertEqual(self.check(data, "grant.p2p-write")["status"], "PASS")
        self.assertEqual(self.check(data, "grant.processes")["status"], "PASS")

    def test_another_process_is_inconclusive_and_named(self):
        data = self.verify(FAKE_BUSY="4711")
        self.assertEqual((data["exit_code"], data["result"]), (9, "inconclusive"))
        self.assertEqual(self.check(data, "grant.processes")["status"], "INCONCLUSIVE")
        self.assertIn("pid 4711 on GPU 0", data["message"])
        self.assertEqual(self.verify("--gpus", "1,2", FAKE_BUSY="4711", FAKE_GPUS="3")["exit_code"], 0)

    def test_a_container_does_not_hide_that_somebody_computes(self):
        data = self.verify(FAKE_USED="600")  # memory is in use, and NVML names nobody
        self.assertEqual(data["exit_code"], 9)
        self.assertRegex(data["message"], "600 MiB in use on GPU 0 by processes that cannot be seen from here|pid [0-9]+ on GPU 0")
        self.assertEqual(self.verify(FAKE_USED="100")["exit_code"], 0)  # what an idle GPU may have

    def test_one_gpu_and_none_are_exit_5_with_what_to_do(self):
        for count, text in (("1", "one GPU"), ("0", "no GPU")):
            data = self.verify(FAKE_GPUS=count)
            self.assertEqual(data["exit_code"], 5)
            self.assertIn(text, data["message"])
            self.assertTrue(data["next"])
        data = self.verify(CUDA_VISIBLE_DEVICES="1")
        self.assertEqual(data["exit_code"], 5)
        self.assertIn("CUDA_VISIBLE_DEVICES leaves one of 2 GPUs", data["message"])

    def test_a_driver_that_does_not_start_says_why(self):
        data = self.verify(FAKE_INIT="18")
        self.assertEqual(data["exit_code"], 5)
        self.assertIn("Driver/library version mismatch (18)", data["message"])
        data = self.verify(FAKE_INIT="999")
        self.assertEqual(data["exit_code"], 5)
        self.assertIn("died", data["message"])

    def test_cuda_overrules_nvml_whatever_becomes_of_it(self):
        self.assertIn("p2p.cuda-disagrees", self.ids(self.verify(FAKE_CUDA="no")))
        self.assertEqual(self.verify(FAKE_CUDA="no")["backends"]["peer-push"], "no")
        for how in ("fails", "dies"):
            data = self.verify(FAKE_CUDA=how)
            self.assertNotIn("p2p.cuda-disagrees", self.ids(data))
            self.assertEqual(self.check(data, "grant.p2p-write")["status"], "PASS")

    def test_the_variable_does_not_hide_gpus_from_the_recording(self):
        data = self.verify(CUDA_VISIBLE_DEVICES="1,0", FAKE_GPUS="3")
        self.assertEqual([gpu["number"] for gpu in data["gpus"]], [1, 0])
        self.assertEqual(self.check(data, "grant.p2p-write")["actual"], "2 of 2 ordered pairs")

    def test_refusals_and_mig(self):
        data = self.verify(FAKE_P2P="2", FAKE_CUDA="no")
        self.assertEqual(data["exit_code"], 0)
        self.assertEqual([f["code"] for f in data["findings"] if f["id"] == "p2p.refused"], ["GNS"])
        self.assertIn("gpu.mig", self.ids(self.verify(FAKE_MIG="1")))

    def test_an_nvml_with_hardly_any_symbol_is_enough(self):
        data = self.verify(driver=MINIMAL)
        self.assertEqual(data["exit_code"], 0)
        self.assertEqual(len(data["gpus"]), 2)
        self.assertIn(data["backends"]["peer-push"], ("unknown", "susp"))  # susp where the tests run in a guest


if __name__ == "__main__":
    unittest.main()
