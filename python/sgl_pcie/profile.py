"""Which algorithm serves which size: a measured profile, or the values to start with.

A table is a list of Entry in rising max_bytes; what is larger than its last entry, and what an entry gives to "stock",
is not ours. docs/formats.md describes the file that `sgl-pcie bench` writes.
"""

import hashlib
import json
from typing import NamedTuple, Tuple

from . import machine, state

FILE = "profile.json"
SCHEMA = "sgl-pcie-profile/1"
STOCK = "stock"
MAX_ENTRIES = 60  # libpar.so takes 64
TRANSPORTS = ("push", "pull", "host")

_ALGORITHMS = {
    "host": ("one-shot", "two-shot", "one-shot-tagged", "two-shot-tagged", "one-shot-chunked", "two-shot-chunked"),
    "push": ("one-shot", "two-shot", "one-shot-chunked", "two-shot-chunked"),
    "pull": ("one-shot", "two-shot"),
}
ALGORITHMS = tuple("%s-%s" % (t, a) for t in TRANSPORTS for a in _ALGORITHMS[t])
# These take messages of any size.
_ENDLESS = {"host": "host-two-shot-chunked", "push": "push-two-shot-chunked", "pull": "pull-two-shot"}
# Of the host and push transports these are bounded by the boxes that a communicator is created with.
_BOUNDED = ("one-shot", "two-shot", "one-shot-tagged", "two-shot-tagged")

SIZE_MAX = (1 << 64) - 1
KIB = 1 << 10
MIB = 1 << 20


class Entry(NamedTuple):
    max_bytes: int
    algorithm: str  # one of ALGORITHMS, or "stock"
    lanes: int = 0  # 0: libpar.so's rule by size
    threads: int = 0


class Table(NamedTuple):
    world: int
    gpus: frozenset
    entries: Tuple[Entry, ...]

    def transports(self):
        return {transport(e.algorithm) for e in self.entries if e.algorithm != STOCK}


def transport(algorithm):
    return algorithm.partition("-")[0]


# --- start values -----------------------------------------------------------------------------------------------------


def start(transport_, world):
    """Entries for a machine that was not measured: only sizes at which ours won by half or more wherever we measured.

    Beyond four ranks nothing was measured on PCIe, and many writers can make a switch collapse: small sizes only.
    """
    two, few = world == 2, world <= 4
    if transport_ == "host":
        if two:
            tagged = Entry(384 * KIB, "host-one-shot-tagged")
            return (Entry(128 * KIB, "host-one-shot"), tagged, Entry(MIB, "host-two-shot-tagged"))
        small = Entry(64 * KIB if few else 32 * KIB, "host-one-shot")
        large = Entry(MIB if few else 512 * KIB, "host-two-shot-tagged")
        return (small, Entry(128 * KIB, "host-two-shot"), large)
    if transport_ == "push":
        if two:
            return (Entry(MIB, "push-one-shot"),)
        small = 192 * KIB if few else 32 * KIB
        return (Entry(small, "push-one-shot"), Entry(2 * MIB if few else 512 * KIB, "push-two-shot"))
    small = 256 * KIB if two else 64 * KIB if few else 32 * KIB
    return (Entry(small, "pull-one-shot"), Entry(512 * KIB, "pull-two-shot"))


# --- what follows from entries ----------------------------------------------------------------------------------------


def windows(entries):
    """The sizes that are ours, as (above, up to) pairs in rising order; neighbours are joined."""
    found, below = [], -1
    for entry in entries:
        if entry.algorithm != STOCK:
            if found and found[-1][1] == below:
                found[-1] = (found[-1][0], entry.max_bytes)
            else:
                found.append((below, entry.max_bytes))
        below = entry.max_bytes
    return tuple(found)


def for_library(entries, numbers):
    """Choices for libpar.so. They have no end: compiled code may have settled on us for another size than it brings.

    numbers: name of an algorithm to its number.
    """
    ours = [e for e in entries if e.algorithm != STOCK]
    choices = [(e.max_bytes, numbers[e.algorithm], e.lanes, e.threads) for e in ours]
    last = ours[-1]
    endless = _ENDLESS[transport(last.algorithm)]
    if last.max_bytes != SIZE_MAX:
        choices.append((SIZE_MAX, numbers[endless], 0, 0))
    return choices


def sentinel_bytes(entries, world):
    """How large libpar.so must make its boxes for these. A one-shot fills them world / 2 times as fast, a push in two
    shots or between two ranks a quarter as fast (kernels/layout.c); what is chunked or pulled has boxes of one size."""
    return max([64 * KIB] + [_box_bytes(*e.algorithm.split("-", 1), e.max_bytes, world) for e in entries])


def _box_bytes(transport_, shape="", bytes_=0, world=2):
    if shape not in _BOUNDED or transport_ == "pull":
        return 0
    one = shape.startswith("one-shot")
    needed = (bytes_ * world + 1) // 2 if one else bytes_
    return (needed + 3) // 4 if transport_ == "push" and (world == 2 or not one) else needed


def digest(entries):
    """What ranks compare."""
    return hashlib.sha256(json.dumps([list(e) for e in entries]).encode()).hexdigest()


# --- the measured one -------------------------------------------------------------------------------------------------


def load(bound, site=state.SITE):
    """(tables, "") measured for this machine and this libpar.so; else ((), why not). bound: machine.read()."""
    read, found = state.read(FILE, SCHEMA, site, parse=parse, holds=lambda p: not machine.differences(p[1], bound))
    if read is None:
        return (), "no profile: %s" % found
    tables, measured = read
    changed = machine.differences(measured, bound)
    if changed:
        return (), "the profile is stale: %s" % "; ".join(changed[:3])
    return tables, ""


def select(tables, uuids, transports):
    """Entries of the first table for these GPUs, else for so many of this machine, that needs no other transports."""
    gpus = frozenset(uuids)
    fitting = [t for t in tables if t.world == len(gpus) and t.transports() <= set(transports)]
    exact = [t for t in fitting if t.gpus == gpus]
    return (exact or fitting)[0].entries if fitting else None


def parse(content):
    """(tables, bound) of a decoded file; LookupError, TypeError or ValueError if it is not one."""
    bound = content["bound"]
    if not isinstance(bound, dict) or not all(isinstance(value, str) for value in bound.values()):
        raise TypeError("bound is not a table of texts")
    if bound.get(machine.LIBRARY, machine.UNREADABLE) == machine.UNREADABLE:
        raise ValueError("bound lacks %s" % machine.LIBRARY)
    if not isinstance(content["tables"], list):
        raise TypeError("tables is not a list")
    return tuple(_table(item) for item in content["tables"]), bound


def _table(item):
    gpus, world = item["gpus"], item["world"]
    if not isinstance(gpus, list) or not all(isinstance(uuid, str) for uuid in gpus) or len(set(gpus)) != len(gpus):
        raise TypeError("gpus is not a list of different UUIDs")
    if type(world) is not int or len(gpus) != world:
        raise ValueError("world %r of %d GPUs" % (world, len(gpus)))
    if not isinstance(item["entries"], list) or not 0 < len(item["entries"]) <= MAX_ENTRIES:
        raise ValueError("%d entries" % len(item["entries"]))
    entries, below = [], -1
    for entry in item["entries"]:
        entries.append(_entry(entry, below))
        below = entries[-1].max_bytes
    return Table(world, frozenset(gpus), tuple(entries))


def _entry(item, below):
    entry = Entry(item["max_bytes"], item["algorithm"], item.get("lanes", 0), item.get("threads", 0))
    for number in (entry.max_bytes, entry.lanes, entry.threads):
        if type(number) is not int or number < 0:
            raise TypeError("%r is not a whole number from 0 up" % (number,))
    if not below < entry.max_bytes <= SIZE_MAX:
        raise ValueError("max_bytes %d does not rise" % entry.max_bytes)
    if entry.algorithm != STOCK and entry.algorithm not in ALGORITHMS:
        raise ValueError("algorithm %r" % (entry.algorithm,))
    if entry.lanes > 1024 or entry.threads > 1024 or entry.threads % 32:
        raise ValueError("lanes %d or threads %d" % (entry.lanes, entry.threads))
    return entry
