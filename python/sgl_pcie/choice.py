"""What one group of ranks does, as far as one rank can tell: a pure function of what is known.

The ranks then compare their answers (ranks.py); any that differs, or says no, makes all of them take stock.
"""

from typing import NamedTuple, Tuple

from . import profile

CANDIDATES = {"auto": ("push", "pull", "host"), "peer": ("push", "pull"), "host": ("host",)}


class Refused(Exception):
    """Stock, and why."""


class Choice(NamedTuple):
    entries: Tuple[profile.Entry, ...]
    basis: str  # what stands behind it, for the log

    def transports(self):
        return {profile.transport(e.algorithm) for e in self.entries if e.algorithm != profile.STOCK}


def choose(backend, uuids, verdict, tables, nvlink):
    """Entries for a group of GPUs; Refused where stock is to be had.

    verdict: None where nothing was proved and the user wants it all the same. nvlink: does NVLink join all pairs; None
    where that cannot be told. tables: of the profile, may be empty.
    """
    if backend == "auto" and nvlink is not False:
        raise Refused(
            "NVLink joins all these GPUs, and SGLANG_PCIE_AR_BACKEND names no transport"
            if nvlink
            else "cannot tell whether NVLink joins these GPUs, and SGLANG_PCIE_AR_BACKEND names no transport"
        )
    usable = _usable(backend, uuids, verdict)
    entries = profile.select(tables, uuids, usable)
    basis = "as measured here" if entries else "start values"
    if not entries:
        entries = profile.start(usable[0], len(uuids))
    if not any(e.algorithm != profile.STOCK for e in entries):
        raise Refused("the profile of this machine gives every size to stock")
    return Choice(entries, basis if verdict else basis + ", nothing was proved")


def _usable(backend, uuids, verdict):
    if verdict:
        passed = [b for b in CANDIDATES[backend] if verdict.covers(b, uuids)]
        if not passed:
            raise Refused("the verdict has no PASS for backend %s on these %d GPUs" % (backend, len(uuids)))
        return passed
    # "P2P works" is often said and wrong, so without proof it is used only by those who ask for it.
    return ["push"] if backend == "peer" else ["host"]
