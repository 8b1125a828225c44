"""What a verdict is bound to, as it is now: read from /proc, /sys and the install, in milliseconds, without a GPU call.

The result is a flat dict of text to text, so that what changed can be said by name. docs/formats.md lists the keys;
`sgl-pcie verify` writes the same ones.
"""

import functools
import glob
import hashlib
import json
import os
import re

from . import nvidia, state

UNREADABLE = "unreadable"  # not root, not mounted: no reason to distrust a verdict

LIBRARY = "libpar.so"
PROGRAM = "sgl-pcie-gpu"


@functools.lru_cache(maxsize=None)
def now():
    """read() for this process, once."""
    return read()


def read(site=state.SITE, root="/"):
    now = {}
    _driver(now, root)
    for index, (bus, uuid) in enumerate(gpus(root)):
        now["gpu %d" % index] = uuid
        _place(now, index, bus, root)
    for name in (LIBRARY, PROGRAM):
        sum_ = sha256(os.path.join(site, "sgl_pcie", name))
        if sum_:
            now[name] = sum_
    _patches(now, site)
    return now


def differences(bound, now):
    """What changed, as sentences; empty: nothing."""
    changed = []
    for name in sorted(set(bound) | set(now)):
        was, is_ = bound.get(name, "absent"), now.get(name, "absent")
        if was != is_ and UNREADABLE not in (was, is_):
            changed.append("%s was %s, is %s" % (name, was, is_))
    return changed


def sha256(path):
    """Hex digest of a file; "" if it cannot be read."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
    except OSError:
        return ""
    return digest.hexdigest()


def gpus(root="/"):
    """(bus address, UUID) of every GPU of the driver, in order of the bus, which is NVML's order, too."""
    found = []
    for path in sorted(glob.glob(os.path.join(root, "proc/driver/nvidia/gpus/*/information"))):
        uuid = re.search(r"^GPU UUID:\s*(GPU-[0-9a-f-]+)\s*$", _text(path), re.M)
        found.append((os.path.basename(os.path.dirname(path)).lower(), uuid and uuid.group(1)))
    if root == "/" and (not found or not all(uuid for _, uuid in found)):
        # The file has question marks until a GPU was first opened, and some containers lack it.
        found = nvidia.gpus()
    return [(bus, uuid or UNREADABLE) for bus, uuid in found]


def _driver(now, root):
    version = _text(os.path.join(root, "sys/module/nvidia/version"))
    if not version:
        match = re.search(r"\b\d+\.\d+(\.\d+)?\b", _text(os.path.join(root, "proc/driver/nvidia/version")))
        version = match.group(0) if match else ""
    now["driver"] = version or UNREADABLE
    # A driver patched for P2P has the same version.
    now["driver build"] = _text(os.path.join(root, "sys/module/nvidia/srcversion")) or UNREADABLE


def _place(now, index, bus, root):
    device = os.path.join(root, "sys/bus/pci/devices", bus)
    path = os.path.realpath(device)
    chain = re.findall(r"/(pci[0-9a-f]{4,}:[0-9a-f]{2}|[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?=/|$)", path)
    now["path %d" % index] = "/".join(chain) if len(chain) > 1 else UNREADABLE
    # The width that was trained and the speed that is possible: an idle link slows down, and that is no change.
    width, speed = _text(device + "/current_link_width"), _text(device + "/max_link_speed")
    now["link %d" % index] = "x%s, to %s" % (width, speed) if width and speed else UNREADABLE
    now["iommu %d" % index] = _text(device + "/iommu_group/type") or (
        "none" if os.path.isdir(device) and not os.path.exists(device + "/iommu_group") else UNREADABLE
    )
    bridges = [os.path.join(root, "sys/bus/pci/devices", name) for name in chain[1:-1]]
    acs = [_acs(bridge) for bridge in bridges]
    now["acs %d" % index] = UNREADABLE if UNREADABLE in acs or not chain else " ".join(acs) or "none"


def _acs(device):
    """Control bits of Access Control Services; "-" without the capability. Root alone can read that far."""
    try:
        with open(device + "/config", "rb") as file:
            config = file.read(4096)
    except OSError:
        return UNREADABLE
    if len(config) < 4096:
        return UNREADABLE
    at, seen = 0x100, 0
    while 0x100 <= at <= 4088 and seen < 64:
        header = int.from_bytes(config[at : at + 4], "little")
        if header & 0xFFFF == 0x000D:
            return "%02x" % int.from_bytes(config[at + 6 : at + 8], "little")
        at, seen = header >> 20, seen + 1
    return "-"


def _patches(now, site):
    try:
        with open(os.path.join(site, ".sgl-pcie", "install.json"), "rb") as file:
            sets = json.loads(file.read(1 << 20).decode())["sets"]
        for name in sets:
            now["patch %s" % name] = str(sets[name]["revision"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        now["patch"] = UNREADABLE


def _text(path):
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(65536).strip()
    except OSError:
        return ""
