"""What each machine of machines/ should make the tool say.

From the table of conclusions that the machines' owners' reports led to: w warn, f fail, i info. Exactly these findings,
with these levels, for all GPUs of the machine; backends as peer-push, peer-pull, host.
"""

YES = ("cand", "cand", "cand")
NO = ("no", "no", "cand")
SUSPECT = ("susp", "susp", "cand")
UNKNOWN = ("unknown", "unknown", "cand")

EXPECTED = {
    # All eight: two GPUs of one switch store behind three other root ports. Of one socket: see SUBSETS.
    "m1-esc8000a-8xpro6000": (
        ("susp", "cand", "cand"),
        "acs.redirect w, topo.sockets w, topo.islands i, topo.shared-uplink i, switch.write-collapse i",
    ),
    "m1-esc8000a-acs-cleared": (
        ("susp", "cand", "cand"),
        "topo.sockets w, topo.islands i, topo.shared-uplink i, switch.write-collapse i",
    ),
    "m2-wrx90-8xpro6000": (YES, "topo.islands i, topo.shared-uplink i"),
    "m2-wrx90-leaves": (YES, "topo.islands i, topo.shared-uplink i"),
    # ACS of this one is not printed: not known is not off. Staging is measured at level 2.
    "m3-dual-epyc-8xpro6000-direct": (
        YES, "acs.unknown i, link.port-pm i, topo.sockets w, topo.islands i",
    ),
    "m3-dual-epyc-keys": (
        YES, "p2p.forced i, acs.unknown i, link.port-pm i, topo.sockets w, topo.islands i",
    ),
    "m4-switch-8x3090-nop2p": (NO, "p2p.refused w, acs.unknown i, topo.islands i, topo.shared-uplink w"),
    "m5-h12ssl-2x3090-idle": (NO, "p2p.refused(NS) w, link.idle i"),
    "m5-h12ssl-not-root": (NO, "p2p.refused(NS) w, acs.unknown i, link.idle i"),
    "m5-trx40-4x3090": (UNKNOWN, "acs.redirect w, link.idle i"),
    "m6-b850-2x5090-patched": (YES, "p2p.forced w, acs.unknown i, link.narrow i"),
    "m6-b850-display": (YES, "p2p.forced w, display.active w, acs.unknown i, link.narrow i"),
    "m6-wrx80-2x5090-stock": (NO, "p2p.refused(GNS) w, acs.unknown i"),
    "m7-z690-2x3090-intel-client": (
        ("cand", "susp", "cand"), "p2p.forced w, p2p.read-suspect w, acs.unknown i, link.narrow i",
    ),
    "m8-amd-4xpro6000-acs-iommu": (SUSPECT, "acs.redirect f, iommu.translated f"),
    "m9-h12d-4x3090-bar1": (SUSPECT, "p2p.forced w, bar1.small w, bar1.uneven w"),
    "m10-q35-2x3090-clique": (SUSPECT, "vm.guest w, p2p.forced w, bar1.small i"),
    "m10-q35-2x3090-vfio": (NO, "vm.guest w, p2p.refused(CNS) w, bar1.small i"),
    "m11-x870e-5070ti-5060ti": (
        NO, "p2p.cuda-disagrees w, p2p.forced w, p2p.mixed-chips w, link.narrow i, link.port-pm i",
    ),
    # The source says "patched"; nothing that can be read on the machine does, so no p2p.forced.
    "m11-x99-2x3090-2x5060ti": (
        NO, "p2p.refused(GNS) w, p2p.refused(NS) w, p2p.mixed-chips w, acs.unknown i, link.narrow i",
    ),
    # Nothing is printed about peers; the driver looks at the chips first, so it is not merely unknown.
    "m11-x570-3080-5090-3080": (
        SUSPECT, "p2p.mixed-chips w, acs.unknown i, link.idle i, link.narrow w, link.uneven w, topo.chipset w",
    ),
    "m12-x399-2x3090": (UNKNOWN, "iommu.translated w, acs.unknown i, topo.numa-unknown i"),
    "m12-x399-pt": (UNKNOWN, "acs.unknown i, topo.numa-unknown i"),
    "m12-z77-2x3090": (UNKNOWN, "acs.unknown i, link.narrow w, link.uneven w"),
    "x-chipset-3x3090": (UNKNOWN, "acs.unknown i, link.narrow i, topo.chipset w"),
    "x-refused-8x4090": (NO, "p2p.refused(CNS) w"),
    "x-turin-4xpro6000-2x5090": (YES, "p2p.forced w"),
    "x-l4-sys": (YES, "acs.unknown i, topo.sockets w"),
    "real-2xh200-guest": (YES, "vm.guest w, topo.nvlink i"),
    "x-a40-nvlink-pairs": (YES, "topo.nvlink i"),
}

# (machine, --gpus): backends, findings that must be there, findings that must not.
SUBSETS = {
    ("m1-esc8000a-8xpro6000", "0-3"): (YES, {"acs.redirect"}, {"switch.write-collapse", "topo.sockets"}),
    ("m1-esc8000a-8xpro6000", "0,1"): (YES, {"topo.shared-uplink"}, {"topo.sockets", "topo.islands"}),
    ("m1-esc8000a-8xpro6000", "0,2,4,6"): (YES, {"topo.sockets"}, {"switch.write-collapse", "topo.shared-uplink"}),
    ("m11-x99-2x3090-2x5060ti", "2,3"): (NO, {"p2p.refused"}, {"p2p.mixed-chips"}),
    ("m9-h12d-4x3090-bar1", "1-3"): (SUSPECT, {"bar1.small"}, {"bar1.uneven"}),
    ("m11-x570-3080-5090-3080", "1,2"): (SUSPECT, {"p2p.mixed-chips"}, {"topo.chipset", "link.uneven"}),
    ("m12-z77-2x3090", "all"): (UNKNOWN, {"link.narrow"}, {"link.idle"}),
    ("m5-h12ssl-2x3090-idle", "0000:81:00.0,0000:c1:00.0"): (NO, {"link.idle"}, {"link.narrow", "acs.unknown"}),
}

# machine: words that the texts and remedies must have, words that they must not.
TEXTS = {
    "m1-esc8000a-8xpro6000": (["2 x 4 of 2 x 2", " at 2a6", " at 176", "setpci", "10:01.1 15:00.0"], []),
    "m2-wrx90-8xpro6000": (["2 x 4"], ["2 x 4 of", "setpci", "iommu"]),
    "m2-wrx90-leaves": (["2 x 4 of 2 x 2"], ["setpci", "iommu"]),
    "m3-dual-epyc-8xpro6000-direct": (["2 x 4"], ["setpci"]),
    "m4-switch-8x3090-nop2p": (["2 x 4", "up and down"], ["setpci", "--level 1"]),
    "m5-h12ssl-2x3090-idle": (["2.5 GT/s while idle", "16 GT/s possible"], ["setpci"]),
    "m7-z690-2x3090-intel-client": (["loads from a peer", "model 183"], []),
    "m8-amd-4xpro6000-acs-iommu": (["setpci", "iommu=pt", "update-grub", "classic hang"], ["grubby"]),
    "m9-h12d-4x3090-bar1": (["256 of 24576 MiB", "Above 4G", "VBIOS"], ["GPU 0 32768 of"]),
    "m10-q35-2x3090-vfio": (["Q35", "another driver in the guest does not help"], ["modified kernel module", "setpci"]),
    "m10-q35-2x3090-clique": (["hypervisor"], ["setpci"]),
    "m12-x399-2x3090": (["grubby", "iommu=pt", "does not mean two sockets"], ["update-grub"]),
    "m12-z77-2x3090": (["x4 of x16", "5 GT/s"], []),
}
