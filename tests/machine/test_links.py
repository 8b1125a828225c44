"""Links, chipsets and what the kernel says of the platform, one reading after the other: what is said of each, and that nothing
else is."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cli"))

import schema  # noqa: E402

CLI = os.environ["SGL_PCIE"]
BRIDGE, AMD, ASMEDIA, INTEL = "0x060400", "0x1022", "0x1b21", "0x8086"
FULL = {"width": 16, "speed": 16.0}
ROOTS = ("0000:00:01.1", "0000:00:03.1")


def card(slot=None, **end):
    """What a card reads, and its slot; both are of 16 lanes at 16 GT/s."""
    slot = {"max_width": 16, "max_speed": 16.0} | (slot or {})
    return {"slot": slot, "end": FULL | {"max_width": 16, "max_speed": 16.0} | end}


def board(*cards, roots=ROOTS, vendor=AMD, switches=(), bus=0):
    """Each card below a root port of its own; with a vendor in switches also below a bridge of his."""
    pci, gpus = [], []
    for i, is_ in enumerate(cards):
        at, parent = "0000:%02x:00.0" % (16 * i + 16), roots[i]
        pci.append({"bdf": parent, "parent": "pci0000:%02x" % bus, "class": BRIDGE, "vendor": vendor, **is_["slot"]})
        if i < len(switches):
            pci.append({"bdf": "0000:%02x:00.0" % (16 * i + 8), "parent": parent, "class": BRIDGE, "vendor": switches[i]})
            parent = pci[-1]["bdf"]
        pci.append({"bdf": at, "parent": parent, "class": "0x030000", "vendor": "0x10de", "device": "0x2204", "numa": 0, **is_["end"]})
        gpus.append({"bdf": at, "name": "NVIDIA GeForce RTX 3090", "device": "0x2204", "memory": 25769803776})
    return {"schema": "sgl-pcie-recording/1", "source": "made up", "machine": {"hypervisor": False, "options": "quiet"},
            "driver": {"version": "580.95.05"}, "nodes": [{"node": 0, "socket": 0}], "pci": pci, "gpus": gpus,
            "pairs": [], "processes": []}  # fmt: skip


def judge(recording):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(recording, file)
        file.flush()
        command = [CLI, "verify", "--level=1", "--json", "--from", file.name]
        answer = json.loads(subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout)
    schema.validate(answer)
    return answer


def findings(recording, kind):
    """{id: (level, text, remedy)} of one kind."""
    found = judge(recording)["findings"]
    return {is_["id"]: (is_["level"][0], is_["text"], is_["remedy"]) for is_ in found if is_["id"].startswith(kind)}


class Links(unittest.TestCase):
    def said(self, *cards, **wanted):
        """wanted: link_narrow=(level, words of the text, words of the remedy or None), and nothing else of links."""
        found = findings(board(*cards), "link.")
        wanted = {name.replace("_", ".", 1).replace("_", "-"): words for name, words in wanted.items()}
        self.assertEqual(sorted(found), sorted(wanted))
        for name, (level, text, remedy) in wanted.items():
            is_ = found[name]
            self.assertEqual(is_[0], level, is_)
            self.assertIn(text, is_[1])
            if remedy is None:
                self.assertIsNone(is_[2])
            else:
                self.assertIn(remedy, is_[2])

    def test_all_lanes_at_full_speed(self):
        self.said(card(), card())

    def test_what_cannot_be_read_is_not_judged(self):
        self.said(card(width=0), card())
        self.said(card(), card(width=0))
        self.said(card(max_width=0), card())
        self.said(card(speed=0), card())

    def test_a_link_that_idles(self):
        self.said(card(), card(speed=2.5), link_idle=("i", "GPU 1: 2.5 GT/s while idle, 16 GT/s possible", None))

    def test_one_lane_of_a_riser(self):
        one = card(width=1, slot={"max_width": 1})
        self.said(one, one, link_narrow=("w", "GPU 0 x1 of x16, GPU 1 x1 of x16", "a wider slot"))

    def test_half_of_the_lanes_is_enough_where_the_board_has_no_more(self):
        half = card(width=8, slot={"max_width": 8})
        self.said(half, half, link_narrow=("i", "GPU 0 x8 of x16, GPU 1 x8 of x16", None))

    def test_half_of_the_lanes_where_the_slot_has_all(self):
        half = card(width=8)
        self.said(half, half, link_narrow=("w", "GPU 0 x8 of x16 though the slot has more", "reseat the card"))

    def test_one_that_is_narrower_than_the_other(self):
        half = card(width=8, slot={"max_width": 8})
        for cards, text in (((half, card()), "GPU 0 x8 up to 16 GT/s, GPU 1 x16"), ((card(), half), "GPU 0 x16 up to 16 GT/s, GPU 1 x8")):
            self.said(*cards, link_narrow=("w", "x8 of x16", "a wider slot"), link_uneven=("w", text, None))

    def test_one_that_is_slower_than_the_other(self):
        slow = card(speed=8.0, slot={"max_speed": 8.0})
        for cards in ((slow, card()), (card(), slow)):
            self.said(*cards, link_uneven=("w", "up to 8 GT/s", None))

    def test_a_port_that_may_power_down_above_one_gen5_card(self):
        fast = card(speed=32.0, max_speed=32.0, slot={"max_speed": 32.0})
        for cards in ((fast, card()), (card(), fast)):
            self.said(*cards, link_port_pm=("i", "Gen5", "pcie_port_pm=off"), link_uneven=("w", "up to 32 GT/s", None))

    def test_generations_where_only_the_driver_tells(self):
        for now, most, text in ((1, 4, "2.5 GT/s while idle, 16"), (3, 6, "8 GT/s while idle, 64"), (2, 5, "5 GT/s while idle, 32")):
            recording = board(card(), card())
            for device in recording["pci"]:
                device.pop("speed", None)
                device.pop("max_speed", None)
            for gpu in recording["gpus"]:
                gpu |= {"generation": now, "max_generation": most, "gpu_max_generation": most}
            self.assertIn(text, findings(recording, "link.idle")["link.idle"][1])
        for gpu in recording["gpus"]:
            gpu |= {"generation": 7, "max_generation": 0, "gpu_max_generation": 0}
        self.assertEqual(findings(recording, "link."), {})


class Chipsets(unittest.TestCase):
    """Root ports of an Intel PCH are devices 1b to 1d of bus 0; on AMD a switch hangs between."""

    def behind(self, **more):
        """Is the first card?"""
        found = findings(board(card(), card(), **more), "topo.chipset")
        return bool(found) and "GPU 0 is behind the chipset" in found["topo.chipset"][1]

    def test_root_ports_of_a_pch(self):
        for device in (0x01, 0x1A, 0x1B, 0x1C, 0x1D, 0x1E):
            roots = ("0000:00:%02x.4" % device, "0000:00:06.0")
            self.assertEqual(self.behind(vendor=INTEL, roots=roots), 0x1B <= device <= 0x1D, roots)
            self.assertFalse(self.behind(vendor=AMD, roots=roots), roots)
        self.assertFalse(self.behind(vendor=INTEL, roots=("0000:40:1b.4", "0000:40:06.0"), bus=0x40))

    def test_switches_of_a_chipset(self):
        for vendor in (AMD, ASMEDIA, INTEL, "0x1000"):
            self.assertEqual(self.behind(switches=(vendor,)), vendor in (AMD, ASMEDIA), vendor)


class Platform(unittest.TestCase):
    """As level 1 writes it down."""

    def found(self, check, recording):
        (is_,) = [is_ for is_ in judge(recording)["checks"] if is_["id"] == "grant." + check]
        return is_["actual"]

    def iommu(self, *types, **machine):
        recording = board(card(), card())
        recording["machine"] |= machine
        ends = [device for device in recording["pci"] if device["class"] == "0x030000"]
        for device, kind in zip(ends, types):
            device["group_type"] = kind
        return self.found("iommu", recording)

    def test_the_kernels_options(self):
        for options, state in (
            ("ro quiet", "not known"), ("iommu=off", "off"), ("ro amd_iommu=off quiet", "off"), ("ro intel_iommu=off", "off"),
            ("ro iommu=pt", "pass-through"), ("iommu=pt quiet", "pass-through"), ("iommu=ptx", "not known"), ("ro xiommu=pt", "not known"),
        ):  # fmt: skip
            self.assertEqual(self.iommu(options=options), state, options)

    def test_units_of_the_machine(self):
        for units, state in ((0, "off"), (1, "not known"), (2, "not known")):
            self.assertEqual(self.iommu(iommu_units=units), state)

    def test_the_groups_type_is_what_is_in_force(self):
        for types, state in (
            (("identity",), "pass-through"), (("DMA",), "translating"), (("DMA-FQ", "identity"), "translating"),
            (("identity", "DMA-FQ"), "translating"), (("blocked",), "off"),
        ):  # fmt: skip
            self.assertEqual(self.iommu(*types, options="iommu=off"), state, types)

    def test_guests(self):
        for mode, state in (("passthrough", "virtual machine"), ("vgpu", "virtual machine"), ("none", "bare metal")):
            recording = board(card(), card())
            recording["gpus"][1]["virtualization"] = mode
            self.assertEqual(self.found("guest", recording), state, mode)
        recording["machine"]["hypervisor"] = True
        self.assertEqual(self.found("guest", recording), "virtual machine")

    def test_chips_by_the_upper_bits_of_their_number(self):
        """2b80 to 2bff are one, whatever the cards are called."""
        for one, two, state in (("0x2b80", "0x2bff", "one"), ("0x2b7f", "0x2b80", "several"), ("0x2c00", "0x2bff", "several")):
            recording = board(card(), card())
            for gpu, device in zip(recording["gpus"], (one, two)):
                gpu["device"] = device
            self.assertEqual(self.found("chips", recording), state, (one, two))


if __name__ == "__main__":
    unittest.main()
