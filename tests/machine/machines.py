"""The recordings in machines/, written by hand from what the owners of these machines published.

    machines.py            check that machines/*.json are what this file says
    machines.py --write    write them

A recording here is of a machine that nobody of us has. What its source does not state is absent. Bridges that must be
there but whose addresses are not printed are made up, and said to be in "remarks", as is all that is inferred.
Sources: rtx6kpro is local-inference-lab/rtx6kpro, club-3090 is noonghunna/club-3090; the rest are GitHub threads.
"""

import json
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent / "machines"

GEN = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0}
MIB = 1 << 20

# Marketing name: PCI device id, memory in MiB as the driver reports it, PCIe generation.
CARDS = {
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": ("0x2bb5", 97887, 5),
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": ("0x2bb1", 97887, 5),
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": ("0x2bb4", 97887, 5),
    "NVIDIA GeForce RTX 5090": ("0x2b85", 32607, 5),
    "NVIDIA GeForce RTX 5070 Ti": ("0x2c05", 16303, 5),
    "NVIDIA GeForce RTX 5060 Ti": ("0x2d04", 16311, 5),
    "NVIDIA GeForce RTX 4090": ("0x2684", 24564, 4),
    "NVIDIA GeForce RTX 3090": ("0x2204", 24576, 4),
    "NVIDIA GeForce RTX 3080": ("0x2206", 10240, 4),
    "NVIDIA L4": ("0x27b8", 23034, 4),
}
SERVER, WORKSTATION, MAXQ = (name for name in CARDS if "PRO 6000" in name)
G5090, G5070TI, G5060TI, G4090, G3090, G3080, L4 = (name for name in CARDS if "PRO 6000" not in name)


def bdf(short):
    return f"0000:{short}"


def link(speed=None, width=None, max_speed=None, max_width=None):
    values = {"speed": speed and GEN[speed], "max_speed": max_speed and GEN[max_speed]}
    values |= {"width": width, "max_width": max_width}
    return {key: value for key, value in values.items() if value is not None}


class Machine:
    """A recording, piece by piece. Functions return the short address, so that they nest."""

    def __init__(self, source, remarks=None, **machine):
        self.data = {"schema": "sgl-pcie-recording/1", "source": source}
        if remarks:
            self.data["remarks"] = remarks
        self.data |= {"machine": machine, "driver": {}, "nodes": [], "pci": [], "gpus": [], "pairs": [], "processes": []}

    def driver(self, **fields):
        self.data["driver"] |= fields
        return self

    def nodes(self, *sockets):
        """The socket of each NUMA node."""
        self.data["nodes"] = [{"node": node, "socket": socket} for node, socket in enumerate(sockets)]
        return self

    def bridge(self, short, parent, **fields):
        """A port of a switch."""
        self.data["pci"].append({"bdf": bdf(short), "parent": bdf(parent), "class": "0x060400"} | fields)
        return short

    def port(self, short, host=None, **fields):
        """A root port; its host bridge is the one of its bus unless told otherwise."""
        self.data["pci"].append(
            {"bdf": bdf(short), "parent": f"pci0000:{host or short[:2]}", "class": "0x060400"} | fields
        )
        return short

    def gpu(self, short, name, parent=None, bus=None, **fields):
        """bus: what sysfs says of the function, besides its ids."""
        device, memory, generation = CARDS[name]
        card = {"bdf": bdf(short), "name": name, "device": device, "memory": memory * MIB}
        card |= {"gpu_max_generation": generation} | fields
        if parent:
            function = {"bdf": bdf(short), "parent": bdf(parent), "vendor": "0x10de", "device": device}
            self.data["pci"].append(function | {"class": "0x030000"} | (bus or {}))
        self.data["gpus"].append(card)
        return short

    def pairs(self, only=None, **fields):
        """The same fields for every ordered pair, or for those that only(from, to) picks."""
        count = len(self.data["gpus"])
        for a in range(count):
            for b in range(count):
                if a != b and (only is None or only(a, b)):
                    self.data["pairs"].append({"from": a, "to": b} | fields)
        return self


AMD = {"cpu_vendor": "AuthenticAMD"}
BARE = {"hypervisor": False}


def m1(acs):
    """Pairs behind switches, two sockets, ACS on by default."""
    m = Machine(
        "rtx6kpro: hardware/asus-esc8000a-e13p-broadcom-switches.md",
        "addresses of the switch ports are made up; family and model of the CPU follow from its name",
        cpu="AMD EPYC 9575F 64-Core Processor", board="ESC8000A-E13P", family=26, model=2,
        options="amd_iommu=off iommu=off", **AMD, **BARE,
    ).driver(version="595.58.03", module="open").nodes(0, 1)  # fmt: skip
    for root, first, second, numa in (("10:01.1", "16", "17", 0), ("70:01.1", "75", "76", 0),
                                      ("80:01.1", "84", "85", 1), ("f0:01.1", "f4", "f5", 1)):  # fmt: skip
        bus = int(first, 16)
        m.port(root, acs=acs, acs_offset="0x02a0", numa=numa, **link(5, 16, 5, 16))
        up = m.bridge(f"{bus - 2:02x}:00.0", root, vendor="0x1000", device="0xc030", numa=numa, **link(5, 16, 5, 16))
        for number, gpu in enumerate((first, second)):
            down = m.bridge(f"{bus - 1:02x}:{number:02x}.0", up, vendor="0x1000", device="0xc030", numa=numa,
                            acs=acs, acs_offset="0x0170", **link(5, 16, 5, 16))  # fmt: skip
            m.gpu(f"{gpu}:00.0", SERVER, down, bus=dict(numa=numa, **link(5, 16, 5, 16)))
    return m.pairs(cuda=True)


def m2():
    """Fours behind switches, one socket, all well."""
    m = Machine(
        "rtx6kpro: hardware/wrx90-cpayne-2switch-flat.md",
        "addresses of the switch ports are made up; ACS is what the 3-switch build of the board shows",
        cpu="AMD Ryzen Threadripper PRO 7955WX 16-Cores", board="WRX90 WS EVO", family=25, model=24,
        iommu_units=0, **AMD, **BARE,
    ).driver(version="595.45.04", module="open").nodes(0)  # fmt: skip
    for root in (0x20, 0x40):
        port = m.port(f"{root:02x}:01.1", acs="0x0000", numa=0, **link(5, 16, 5, 16))
        up = m.bridge(f"{root + 1:02x}:00.0", port, vendor="0x1f18", device="0x0101", acs="none", **link(5, 16, 5, 16))
        for number in range(4):
            down = m.bridge(f"{root + 2:02x}:{number:02x}.0", up, vendor="0x1f18", device="0x0101", acs="0x0000",
                            **link(5, 16, 5, 16))  # fmt: skip
            m.gpu(f"{root + 3 + number:02x}:00.0", WORKSTATION, down, bus=dict(numa=0, **link(5, 16, 5, 16)))
    return m.pairs(read="OK", write="OK")


def m2_leaves():
    """The build with a root switch and leaves under each root port."""
    m = Machine(
        "rtx6kpro: hardware/wrx90-cpayne-microchip-switches.md",
        "addresses of the switch ports are made up",
        cpu="AMD Ryzen Threadripper PRO 7955WX 16-Cores", board="WRX90 WS EVO", family=25, model=24,
        iommu_units=0, **AMD, **BARE,
    ).driver(version="595.45.04", module="open").nodes(0)  # fmt: skip
    switch = dict(vendor="0x1f18", device="0x0101", acs="0x0000")
    for root, leaves in ((0x20, (("25", "26"), ("2a", "2b"))), (0x40, (("45", "46"), ("49", "4a")))):
        port = m.port(f"{root:02x}:01.1", acs="0x0000", numa=0)
        up = m.bridge(f"{root + 1:02x}:00.0", port, **switch)
        for number, leaf in enumerate(leaves):
            down = m.bridge(f"{root + 2:02x}:{number:02x}.0", up, **switch)
            leaf_up = m.bridge(f"{int(leaf[0], 16) - 2:02x}:00.0", down, **switch)
            for slot, gpu in enumerate(leaf):
                leaf_down = m.bridge(f"{int(leaf[0], 16) - 1:02x}:{slot:02x}.0", leaf_up, **switch)
                m.gpu(f"{gpu}:00.0", WORKSTATION, leaf_down, bus=dict(numa=0, **link(5, 16, 5, 16)))
    return m.pairs(read="OK", write="OK")


def m3(keys):
    """Eight GPUs, two sockets, no switch."""
    m = Machine(
        "rtx6kpro: hardware/gpu-configs.md, topology.md",
        "all addresses are made up; each GPU has a root port of its own",
        cpu="AMD EPYC 9575F 64-Core Processor", board="K15PG-D24", family=26, model=2,
        options="amd_iommu=off iommu=off", **AMD, **BARE,
    ).driver(version="590.48.01").nodes(0, 1)  # fmt: skip
    if keys:
        m.driver(registry="ForceP2P=0x11;RMForceP2PType=1;RMPcieP2PType=2")
    for number in range(8):
        host = 0x10 * (number // 4 * 8 + number % 4 + 1)
        port = m.port(f"{host:02x}:01.1", host=f"{0x80 if number >= 4 else 0x10:02x}", **link(5, 16, 5, 16))
        m.gpu(f"{host + 1:02x}:00.0", WORKSTATION, port, bus=dict(numa=number // 4, **link(5, 16, 5, 16)),
              bar1=98304 * MIB)  # fmt: skip
    return m.pairs(cuda=True)


def m4():
    """GeForce behind switches, no peer access: the near pair is the slow one."""
    m = Machine("NVIDIA/nccl#1127", "two fours behind one switch each, inferred; addresses of the bridges are made up")
    for root, bus, gpus in ((0x17, 0x19, ("1b", "1c", "1d", "1e")), (0x3a, 0x3b, ("3d", "3f", "40", "41"))):
        port = m.port(f"{root:02x}:00.0")
        up = m.bridge(f"{bus:02x}:00.0", port)
        for number, gpu in enumerate(gpus):
            down = m.bridge(f"{bus + 1:02x}:{number:02x}.0", up)
            m.gpu(f"{gpu}:00.0", G3090, down, max_generation=3, width=16, max_width=16)
    return m.pairs(cuda=False)


def m5(root):
    """Stock consumer cards, links at 2.5 GT/s because idle."""
    m = Machine(
        "noonghunna/club-3090#1125", cpu="AMD EPYC 7302P 16-Core Processor", board="H12SSL-NT", family=23, model=49,
        privileged=root, **AMD, **BARE,
    ).nodes(0)  # fmt: skip
    for port, gpu in (("80:01.1", "81:00.0"), ("c0:01.1", "c1:00.0")):
        m.port(port, numa=0, **link(1, 16, 4, 16), **({"acs": "none"} if root else {}))
        m.gpu(gpu, G3090, port, bus=dict(numa=0, **link(1, 16, 4, 16)))
    return m.pairs(read="NS", write="NS", label="NODE")


def m5_trx40():
    """The second case: one of four cards is printed, the port redirects."""
    m = Machine(
        "noonghunna/club-3090#1028", "only the first card's place is printed; the other three are as it",
        cpu="AMD Ryzen Threadripper 3970X 32-Core Processor", board="TRX40-PRO S", family=23, model=49, **AMD, **BARE,
    )  # fmt: skip
    for port, gpu in (("00:01.1", "01:00.0"), ("20:01.1", "21:00.0"), ("40:01.1", "41:00.0"), ("60:01.1", "61:00.0")):
        m.port(port, acs="0x000d", **link(1, 16, 4, 16))
        m.gpu(gpu, G3090, port, bus=link(1, 16, 4, 16))
    return m


def m6(patched, display=False):
    """Consumer cards with a patched driver: granted, hung, then fine."""
    if not patched:
        m = Machine("noonghunna/club-3090#1140", board="WRX80 Creator R2.0", family=23, model=49,
                    cpu="AMD Ryzen Threadripper PRO 3975WX 32-Cores", **AMD, **BARE)  # fmt: skip
        for port, gpu in (("00:01.1", "01:00.0"), ("00:03.1", "02:00.0")):
            m.port(port)
            m.gpu(gpu, G5090, port)
        return m.pairs(read="GNS", write="GNS", label="PHB")
    m = Machine(
        "noonghunna/club-3090#873, #1075", "which function is which follows from the tree",
        cpu="AMD Ryzen 9 9950X3D 16-Core Processor", board="B850 AI TOP", family=26, model=68, **AMD, **BARE,
    ).driver(version="610.43.03", module="open").nodes(0)  # fmt: skip
    for number, (port, gpu) in enumerate((("00:01.1", "01:00.0"), ("00:01.4", "03:00.0"))):
        m.port(port, **link(5, 8, 5, 8))
        m.gpu(gpu, G5090, port, bus=dict(numa=0, **link(5, 8, 5, 16)), bar1=32768 * MIB,
              **({"display": number == 0} if display else {}))  # fmt: skip
    return m.pairs(read="OK")


def m7():
    """Intel client platform: only writes can be trusted."""
    m = Machine(
        "noonghunna/club-3090#922", "family and model of the CPU follow from its name",
        cpu="Intel(R) Core(TM) i9-14900K", cpu_vendor="GenuineIntel", family=6, model=183, board="Z690", **BARE,
    ).driver(version="610.43.02", module="open").nodes(0)  # fmt: skip
    for port, gpu in (("00:01.0", "01:00.0"), ("00:01.1", "02:00.0")):
        m.port(port, **link(4, 8, 4, 8))
        m.gpu(gpu, G3090, port, bus=dict(numa=0, **link(4, 8, 4, 16)))
    return m.pairs(read="OK", write="OK", label="PHB")


def m8():
    """ACS redirect on, IOMMU translated."""
    m = Machine(
        "vllm-project/vllm#51513", "addresses are made up; that peer access is granted follows from NCCL having chosen it",
        options="", iommu_units=4, distribution="ubuntu", distribution_like="debian", **AMD, **BARE,
    ).driver(version="595.84")  # fmt: skip
    for number in range(4):
        host = 0x20 * number + 0x20
        port = m.port(f"{host:02x}:01.1", acs="0x001d", acs_offset="0x02a0", numa=0, **link(4, 16, 5, 16))
        m.gpu(f"{host + 1:02x}:00.0", MAXQ, port, bus=dict(numa=0, group=20 + number, group_type="DMA-FQ",
              **link(4, 16, 4, 16)), max_generation=4)  # fmt: skip
    return m.pairs(cuda=True, label="NODE")


def m9():
    """One GPU with a full BAR1, three with 256 MiB."""
    m = Machine(
        "aikitoria/open-gpu-kernel-modules#22",
        "addresses are made up; 256 MiB on the other three and that peer access is granted are inferred",
        board="H12D-8D", **BARE,
    ).driver(version="595.58.03-p2p", module="open")  # fmt: skip
    for number in range(4):
        m.gpu(f"{0x20 * number + 1:02x}:00.0", G3090, bar1=(32768 if number == 0 else 256) * MIB)
    return m.pairs(cuda=True)


def m10(clique):
    """Passthrough guest, grant asserted by the hypervisor, writes mirrored."""
    m = Machine(
        "NVIDIA/nccl#2335", "addresses in the guest are made up; mode passthrough is inferred",
        cpu="AMD EPYC", product="Standard PC (Q35 + ICH9, 2009)", kernel="6.8",
        hypervisor=True, **AMD,
    ).driver(version="610.57.04", module="open")  # fmt: skip
    for port, gpu in (("00:1c.0", "01:00.0"), ("00:1c.1", "02:00.0")):
        m.port(port)
        m.gpu(gpu, G3090, port, virtualization="passthrough", bar1=256 * MIB)
    if clique:
        return m.pairs(read="OK", write="OK", cuda=True, label="PHB")
    return m.pairs(read="CNS", label="PHB")


def m11():
    """Two different chips, patched driver: NVML says yes, CUDA says no."""
    m = Machine(
        "aikitoria/open-gpu-kernel-modules#13", "addresses of ports and cards are made up",
        cpu="AMD Ryzen 5 7600 6-Core Processor", board="X870E Taichi", family=25, model=97, options="iommu=pt",
        iommu_units=1, **AMD, **BARE,
    ).driver(version="610.43.02-p2p", module="open").nodes(0)  # fmt: skip
    for port, gpu, name in (("00:01.1", "01:00.0", G5070TI), ("00:01.3", "02:00.0", G5060TI)):
        m.port(port, acs="0x0000", acs_offset="0x02a6", **link(5, 8, 5, 8))
        m.gpu(gpu, name, port, bus=dict(numa=0, group_type="identity", **link(5, 8, 5, 16)))
    return m.pairs(read="OK", write="OK", cuda=False, label="PHB")


def m11_x99():
    """Two of one chip, two of another: barred inside, not supported across."""
    m = Machine("aikitoria/open-gpu-kernel-modules#43", "addresses are made up; family and model are those of X99",
                cpu_vendor="GenuineIntel", family=6, model=79, options="iommu=pt", **BARE)  # fmt: skip
    m.driver(version="610.43.02", module="open")
    for number, name in enumerate((G3090, G3090, G5060TI, G5060TI)):
        port = m.port(f"00:0{number + 1}.0", **link(3, 8, 3, 8))
        m.gpu(f"0{number + 1}:00.0", name, port, bus=link(3, 8, max_width=16), **({"bar1": 32768 * MIB} if not number else {}))
    m.pairs(lambda a, b: a // 2 == b // 2, read="GNS", write="GNS")
    return m.pairs(lambda a, b: a // 2 != b // 2, read="NS", write="NS")


def m11_x570():
    """One card on four lanes under the chipset, two on eight lanes of the CPU."""
    m = Machine("noonghunna/club-3090#707", "addresses of the CPU's ports are made up", **AMD, **BARE)
    up = m.bridge("02:00.0", m.port("00:01.2"))
    down = m.bridge("03:00.0", up)
    m.gpu("05:00.0", G3080, down, bus=link(1, 4), generation=1, width=4, max_width=16, max_generation=4)
    for port, gpu, name in (("00:03.1", "0a:00.0", G5090), ("00:03.2", "0b:00.0", G3080)):
        m.port(port)
        m.gpu(gpu, name, port, bus=link(1, 8), generation=1, width=8, max_width=16, max_generation=4)
    return m


def m12_x399(translated):
    """One socket, two dies, a NUMA node that the kernel does not know."""
    m = Machine(
        "noonghunna/club-3090#178", "numa_node -1 of the first card is inferred from its affinity",
        cpu="AMD Ryzen Threadripper 1950X 16-Core Processor", board="PRIME X399-A", family=23, model=1,
        distribution="fedora", options="" if translated else "iommu=pt", iommu_units=2, **AMD, **BARE,
    ).driver(version="595.71.05").nodes(0, 0)  # fmt: skip
    for port, gpu, numa in (("00:03.1", "09:00.0", -1), ("40:01.3", "41:00.0", 1)):
        m.port(port, numa=numa, **link(3, 16, 3, 16))
        m.gpu(gpu, G3090, port, max_generation=3,
              bus=dict(numa=numa, group_type="DMA" if translated else "identity", **link(3, 16, 4, 16)))  # fmt: skip
    return m.pairs(label="SYS")


def m12_z77():
    """Sixteen lanes of Gen3 and four lanes of Gen2, which is all that the second slot has."""
    m = Machine(
        "noonghunna/club-3090: BENCHMARKS.md", "the ports' addresses are made up", cpu="Intel(R) Core(TM) i7-3770K",
        cpu_vendor="GenuineIntel", family=6, model=58, board="P8Z77-V LX", **BARE,
    ).nodes(0)  # fmt: skip
    m.gpu("01:00.0", G3090, m.port("00:01.0"), generation=3, width=16, max_generation=3, max_width=16)
    m.gpu("02:00.0", G3090, m.port("00:1b.4"), generation=2, width=4, max_generation=2, max_width=16)
    return m


def chipset_3x3090():
    """All PHB and all x8, yet one card is under the chipset."""
    m = Machine("noonghunna/club-3090: docs/PCIE_P2P.md 1", "addresses are made up", **AMD, **BARE)
    up = m.bridge("02:00.0", m.port("00:01.2", **link(4, 8, 4, 8)), vendor="0x1022", device="0x57ad")
    down = m.bridge("03:00.0", up, vendor="0x1022", device="0x57a3")
    m.gpu("04:00.0", G3090, down, bus=link(4, 8, 4, 16))
    for port, gpu in (("00:03.1", "0a:00.0"), ("00:03.2", "0b:00.0")):
        m.gpu(gpu, G3090, m.port(port, **link(4, 8, 4, 8)), bus=link(4, 8, 4, 16))
    return m.pairs(label="PHB")


def refused_8x4090():
    """Patched, and refused all the same."""
    m = Machine("tinygrad/open-gpu-kernel-modules#23", "addresses are made up", cpu_vendor="GenuineIntel", family=6,
                model=106, **BARE).driver(version="550.90.07", module="open")  # fmt: skip
    for number in range(8):
        m.gpu(f"{0x10 * number + 1:02x}:00.0", G4090)
    return m.pairs(read="CNS", write="CNS")


def turin_mixed():
    """Cards of two names and one chip."""
    m = Machine("rtx6kpro: hardware/pcie-bandwidth.md", "addresses are made up", **AMD, **BARE)
    for number in range(6):
        m.gpu(f"{0x10 * number + 1:02x}:00.0", WORKSTATION if number < 4 else G5090)
    return m.pairs(cuda=True)


def l4_sys():
    """SYS is no refusal."""
    m = Machine("NVIDIA/cuda-samples#284", "addresses are made up", **BARE).nodes(0, 0, 1, 1)
    for port, gpu, numa in (("00:01.1", "01:00.0", 0), ("80:01.1", "81:00.0", 2)):
        m.gpu(gpu, L4, m.port(port, numa=numa), bus=dict(numa=numa))
    return m.pairs(cuda=True, label="SYS")


def a40_nvlink():
    """Pairs of NVLink with PCIe between them."""
    CARDS["NVIDIA A40"] = ("0x2235", 46068, 4)
    m = Machine("NVIDIA/nccl-tests#74", "addresses are made up; NVLink joins neighbours", **AMD, **BARE)
    for number in range(8):
        m.gpu(f"{0x10 * number + 1:02x}:00.0", "NVIDIA A40")
    m.pairs(lambda a, b: a // 2 == b // 2, read="OK", write="OK", nvlink="OK")
    return m.pairs(lambda a, b: a // 2 != b // 2, read="OK", write="OK", nvlink="NS")


class Recorded:
    """Not made up: what `sgl-pcie report` wrote on a machine, which is its file itself."""

    def __init__(self, name):
        self.data = json.loads((FOLDER / f"{name}.json").read_text())


MACHINES = {
    "real-2xh200-guest": Recorded("real-2xh200-guest"),
    "m1-esc8000a-8xpro6000": m1("0x001d"),
    "m1-esc8000a-acs-cleared": m1("0x0011"),
    "m2-wrx90-8xpro6000": m2(),
    "m2-wrx90-leaves": m2_leaves(),
    "m3-dual-epyc-8xpro6000-direct": m3(False),
    "m3-dual-epyc-keys": m3(True),
    "m4-switch-8x3090-nop2p": m4(),
    "m5-h12ssl-2x3090-idle": m5(True),
    "m5-h12ssl-not-root": m5(False),
    "m5-trx40-4x3090": m5_trx40(),
    "m6-b850-2x5090-patched": m6(True),
    "m6-b850-display": m6(True, display=True),
    "m6-wrx80-2x5090-stock": m6(False),
    "m7-z690-2x3090-intel-client": m7(),
    "m8-amd-4xpro6000-acs-iommu": m8(),
    "m9-h12d-4x3090-bar1": m9(),
    "m10-q35-2x3090-clique": m10(True),
    "m10-q35-2x3090-vfio": m10(False),
    "m11-x870e-5070ti-5060ti": m11(),
    "m11-x99-2x3090-2x5060ti": m11_x99(),
    "m11-x570-3080-5090-3080": m11_x570(),
    "m12-x399-2x3090": m12_x399(True),
    "m12-x399-pt": m12_x399(False),
    "m12-z77-2x3090": m12_z77(),
    "x-chipset-3x3090": chipset_3x3090(),
    "x-refused-8x4090": refused_8x4090(),
    "x-turin-4xpro6000-2x5090": turin_mixed(),
    "x-l4-sys": l4_sys(),
    "x-a40-nvlink-pairs": a40_nvlink(),
}


def text_of(machine):
    """One line for each function, GPU and pair, so that a difference is a line."""
    lines = []
    for key, value in machine.data.items():
        if isinstance(value, list):
            items = ",\n".join("    " + json.dumps(item) for item in value)
            lines.append(f'  "{key}": [\n{items}\n  ]' if items else f'  "{key}": []')
        else:
            lines.append(f'  "{key}": {json.dumps(value)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main():
    wanted = {f"{name}.json": text_of(machine) for name, machine in MACHINES.items()}
    if sys.argv[1:] == ["--write"]:
        for name, text in wanted.items():
            (FOLDER / name).write_text(text)
    found = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    wrong = sorted(name for name in wanted if wanted[name] != found.get(name))
    print(f"{len(wanted)} machines, {len(wrong)} differ: {', '.join(wrong)}" if wrong else f"{len(wanted)} machines")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
