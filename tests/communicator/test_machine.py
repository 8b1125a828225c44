"""What a verdict is bound to, read from made-up /proc and /sys; and from this machine, quickly."""

import os
import struct
import sys
import time
import unittest
from unittest import mock

import common

sys.path.insert(0, str(common.ROOT / "python"))

from sgl_pcie import machine, nvidia  # noqa: E402

UUID = "GPU-%08x-0000-0000-0000-000000000000"


def config_space(acs=None):
    """4 KiB with one other extended capability, then ACS with these control bits."""
    space = bytearray(4096)
    struct.pack_into("<I", space, 0x100, (0x140 << 20 if acs is not None else 0) | 1 << 16 | 0x0001)
    if acs is not None:
        struct.pack_into("<IHH", space, 0x140, 1 << 16 | 0x000D, 0x5F, acs)
    return bytes(space)


class Recorded(common.Scratch, unittest.TestCase):
    """Two GPUs: one below a switch, one on a root port."""

    def setUp(self):
        super().setUp()
        self.site = self.scratch / "site"
        self.write("site/sgl_pcie/libpar.so", "library")
        self.write("site/.sgl-pcie/install.json", '{"sets": {"sglang": {"revision": 1, "files": []}}}')
        self.write("sys/module/nvidia/version", "580.95.05\n")
        self.write("sys/module/nvidia/srcversion", "0A1B2C\n")
        self.gpu("0000:c1:00.0", 2, ["pci0000:c0", "0000:c0:01.1"], None)
        self.gpu(
            "0000:41:00.0",
            1,
            ["pci0000:40", "0000:40:01.1", "0000:41:00.0", "0000:42:00.0"],
            0x1D,
            bus_is="0000:43:00.0",
        )

    def write(self, name, text):
        path = self.scratch / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def gpu(self, bus, number, above, acs, bus_is=None):
        bus = bus_is or bus
        self.write("proc/driver/nvidia/gpus/%s/information" % bus, "Model: \t\t A\nGPU UUID: \t %s\n" % (UUID % number))
        folder = "sys/devices/" + "/".join(above + [bus])
        self.write(folder + "/current_link_width", "16\n")
        self.write(folder + "/max_link_speed", "32.0 GT/s PCIe\n")
        self.write("sys/groups/%d/type" % number, "identity\n")
        os.symlink(self.scratch / ("sys/groups/%d" % number), self.scratch / folder / "iommu_group")
        devices = self.scratch / "sys/bus/pci/devices"
        devices.mkdir(parents=True, exist_ok=True)
        for depth in range(1, len(above) + 1):
            name = (above + [bus])[depth]
            os.symlink(self.scratch / "sys/devices" / "/".join((above + [bus])[: depth + 1]), devices / name)
            if name != bus:
                self.write("sys/devices/" + "/".join(above[: depth + 1]) + "/config", config_space(acs))

    def read(self):
        return machine.read(str(self.site), str(self.scratch))

    def test_all_keys(self):
        sum_ = machine.sha256(self.site / "sgl_pcie/libpar.so")
        self.assertEqual(
            self.read(),
            {
                "driver": "580.95.05",
                "driver build": "0A1B2C",
                "gpu 0": UUID % 1,
                "gpu 1": UUID % 2,
                "path 0": "pci0000:40/0000:40:01.1/0000:41:00.0/0000:42:00.0/0000:43:00.0",
                "path 1": "pci0000:c0/0000:c0:01.1/0000:c1:00.0",
                "link 0": "x16, to 32.0 GT/s PCIe",
                "link 1": "x16, to 32.0 GT/s PCIe",
                "iommu 0": "identity",
                "iommu 1": "identity",
                "acs 0": "1d 1d 1d",
                "acs 1": "-",
                "libpar.so": sum_,
                "patch sglang": "1",
            },
        )

    def changed(self):
        return machine.differences(self.was, self.read())

    def test_each_change_is_named(self):
        self.was = self.read()
        self.assertEqual(self.changed(), [])
        root = "sys/devices/pci0000:c0/0000:c0:01.1"
        for name, text, key in (
            ("sys/module/nvidia/version", "590.1\n", "driver"),
            ("sys/module/nvidia/srcversion", "PATCHED\n", "driver build"),
            (root + "/0000:c1:00.0/current_link_width", "8\n", "link 1"),
            (root + "/0000:c1:00.0/max_link_speed", "16.0 GT/s PCIe\n", "link 1"),
            (root + "/config", config_space(0x01), "acs 1"),
            ("sys/groups/2/type", "DMA-FQ\n", "iommu 1"),
            ("site/sgl_pcie/libpar.so", "another", "libpar.so"),
            ("site/sgl_pcie/sgl-pcie-gpu", "new", "sgl-pcie-gpu"),
            ("site/.sgl-pcie/install.json", '{"sets": {"sglang": {"revision": 2}}}', "patch sglang"),
            ("proc/driver/nvidia/gpus/0000:c1:00.0/information", "GPU UUID: %s\n" % (UUID % 7), "gpu 1"),
        ):
            with self.subTest(name):
                path = self.scratch / name
                before = path.read_bytes() if path.exists() else None
                self.write(name, text)
                self.assertEqual([c.partition(" was ")[0] for c in self.changed()], [key])
                self.write(name, before) if before is not None else path.unlink()

    def test_an_idle_link_is_no_change(self):
        self.was = self.read()
        self.write("sys/devices/pci0000:c0/0000:c0:01.1/0000:c1:00.0/current_link_speed", "2.5 GT/s PCIe\n")
        self.assertEqual(self.changed(), [])

    def test_a_gpu_more_and_one_less(self):
        self.was = self.read()
        self.gpu("0000:e1:00.0", 3, ["pci0000:e0", "0000:e0:01.1"], None)
        self.assertIn("gpu 2 was absent, is %s" % (UUID % 3), self.changed())
        self.was = self.read()
        (self.scratch / "proc/driver/nvidia/gpus/0000:e1:00.0/information").unlink()
        self.assertIn("gpu 2 was %s, is absent" % (UUID % 3), self.changed())

    def test_without_root_config_space_tells_nothing(self):
        self.was = self.read()
        self.write("sys/devices/pci0000:c0/0000:c0:01.1/config", config_space(0)[:64])
        self.assertEqual(self.read()["acs 1"], machine.UNREADABLE)
        self.assertEqual(self.changed(), [])

    def test_no_iommu(self):
        (self.scratch / "sys/devices/pci0000:c0/0000:c0:01.1/0000:c1:00.0/iommu_group").unlink()
        self.assertEqual(self.read()["iommu 1"], "none")

    def test_a_ring_of_capabilities_ends(self):
        space = bytearray(config_space(None))
        struct.pack_into("<I", space, 0x100, 0x100 << 20 | 1 << 16 | 0x0001)
        self.write("sys/devices/pci0000:c0/0000:c0:01.1/config", bytes(space))
        self.assertEqual(self.read()["acs 1"], "-")

    def test_question_marks_before_a_gpu_was_opened(self):
        self.write(
            "proc/driver/nvidia/gpus/0000:c1:00.0/information",
            "GPU UUID: \t GPU-????????-????-????-????-????????????\n",
        )
        self.assertEqual(self.read()["gpu 1"], machine.UNREADABLE)

    def test_driver_from_proc(self):
        (self.scratch / "sys/module/nvidia/version").unlink()
        text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\nGCC version: gcc 12.2.0\n"
        self.write("proc/driver/nvidia/version", text)
        self.assertEqual(self.read()["driver"], "580.95.05")

    def test_damaged_install_description(self):
        for text in ("", "{", '{"sets": 7}', '{"sets": {"sglang": {}}}', "[" * 9999):
            self.write("site/.sgl-pcie/install.json", text)
            self.assertEqual(self.read().get("patch"), machine.UNREADABLE, text[:20])


class Here(unittest.TestCase):
    def test_milliseconds(self):
        started = time.monotonic()
        machine.read()
        self.assertLess(time.monotonic() - started, 0.5)

    @unittest.skipIf(os.path.exists("/dev/nvidiactl"), "there is a driver")
    def test_without_a_driver(self):
        self.assertEqual(machine.gpus(), [])
        self.assertEqual(nvidia.gpus(), [])
        with self.assertRaisesRegex(nvidia.Missing, "NVML"):
            nvidia.all_nvlink(["a", "b"])
        with self.assertRaisesRegex(nvidia.Missing, "CUDA driver|cuInit"):
            nvidia.cuda_uuid(0)


class Nvml(unittest.TestCase):
    """nvidia.py over a made-up NVML."""

    def library(self, joined, fails=()):
        def call(name, answer):
            return lambda *args: 9 if name in fails else answer(*args) or 0

        def by_uuid(uuid, handle):
            handle._obj.value = int(uuid.rpartition(b"-")[2]) + 1

        def status(a, b, index, out):
            out._obj.value = 0 if (min(a.value, b.value) - 1, max(a.value, b.value) - 1) in joined else 5

        return mock.Mock(
            nvmlInit_v2=call("init", lambda: None),
            nvmlShutdown=lambda: 0,
            nvmlDeviceGetHandleByUUID=call("handle", by_uuid),
            nvmlDeviceGetP2PStatus=call("status", status),
        )

    def ask(self, count, joined, fails=()):
        with mock.patch.object(nvidia.ctypes, "CDLL", lambda name: self.library(joined, fails)):
            return nvidia.all_nvlink(["GPU-%d" % i for i in range(count)])

    def test_every_pair_counts(self):
        every = {(a, b) for b in range(4) for a in range(b)}
        self.assertTrue(self.ask(4, every))
        for pair in every:
            self.assertFalse(self.ask(4, every - {pair}), pair)
        self.assertFalse(self.ask(2, set()))

    def test_no_answer_is_no_guess(self):
        for what in ("init", "handle", "status"):
            with self.assertRaises(nvidia.Missing):
                self.ask(2, {(0, 1)}, (what,))


if __name__ == "__main__":
    unittest.main()
