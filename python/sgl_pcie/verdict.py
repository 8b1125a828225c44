"""The verdict that `sgl-pcie verify` wrote for this machine: whether it still holds, and for which GPUs.

docs/formats.md describes the file. Anything that is not as described there makes it count for nothing.
"""

import os
from typing import Dict, FrozenSet, List, NamedTuple, Tuple

from . import machine, state

FILE = "verdict.json"
SCHEMA = "sgl-pcie-verdict/1"
UPSTREAM = "upstream"
UPSTREAM_LIBRARY = "libupstream.so"
BACKENDS = ("push", "pull", "host", UPSTREAM)
NEEDED_LEVEL = 3
LEVELS = range(1, 5)
WORLDS = range(2, 9)
RESULTS = ("PASS", "FAIL", "INCONCLUSIVE")


class Result(NamedTuple):
    backend: str
    world: int
    gpus: FrozenSet[str]
    passed: bool
    library: str = ""  # of SGLang's own kernel: what was run, "" as the wheel has it


class Pairs(NamedTuple):
    backend: str
    gpus: FrozenSet[str]
    failed: List[Tuple[str, str]]


class Verdict(NamedTuple):
    level: int
    bound: Dict[str, str]
    results: List[Result]
    pairs: List[Pairs]

    def covers(self, backend, uuids):
        """Was this backend proved on these GPUs together?

        A result for exactly these GPUs decides. Otherwise every ordered pair must have passed, and this world size
        on some GPUs of the same set of pairs.
        """
        gpus = frozenset(uuids)
        of_size = [r for r in self.results if r.backend == backend and r.world == len(gpus)]
        exact = [r.passed for r in of_size if r.gpus == gpus]
        if exact:
            return all(exact)
        return any(
            p.backend == backend
            and gpus <= p.gpus
            and not any(a in gpus and b in gpus for a, b in p.failed)
            and any(r.passed and r.gpus <= p.gpus for r in of_size)
            for p in self.pairs
        )


def load(site=state.SITE, now=None):
    """(verdict, "") if there is one for this install and nothing changed; else (None, why not)."""

    def changes(verdict):
        return machine.differences(verdict.bound, machine.now() if now is None else now)

    verdict, found = state.read(FILE, SCHEMA, site, parse=parse, holds=lambda verdict: not changes(verdict))
    if verdict is None:
        return None, "no verdict: %s" % found
    if verdict.level < NEEDED_LEVEL:
        return None, "the verdict is of level %d, %d is needed" % (verdict.level, NEEDED_LEVEL)
    changed = changes(verdict)
    if changed:
        return None, "the verdict is stale: %s" % "; ".join(changed[:3])
    verdict = _of_this_kernel(verdict, site)
    if not any(result.passed for result in verdict.results):
        return None, "the verdict says that nothing passed"
    return verdict, ""


def _of_this_kernel(verdict, site):
    """Without the results of another kernel of SGLang's than the one that is installed."""
    if not any(result.backend == UPSTREAM for result in verdict.results):
        return verdict
    library = machine.sha256(os.path.join(site, "sgl_pcie", UPSTREAM_LIBRARY))
    return verdict._replace(results=[r for r in verdict.results if r.backend != UPSTREAM or r.library == library])


def parse(content):
    """Verdict of a decoded file; LookupError, TypeError or ValueError if it is not one."""
    bound = content["bound"]
    if not isinstance(bound, dict) or not all(isinstance(value, str) for value in bound.values()):
        raise TypeError("bound is not a table of texts")
    for name in (machine.LIBRARY, "driver", "gpu 0"):
        if name not in bound:
            raise ValueError("bound lacks %s" % name)
    if bound[machine.LIBRARY] == machine.UNREADABLE:  # it would hold for every library
        raise ValueError("bound is of no library")
    level, results, pairs = content["level"], content["results"], content["pairs"]
    if type(level) is not int:
        raise TypeError("level is not a whole number")
    if level not in LEVELS:
        raise ValueError("there is no level %d" % level)
    if not isinstance(results, list) or not isinstance(pairs, list):
        raise TypeError("results or pairs is not a list")
    return Verdict(level, bound, [_result(r) for r in results], [_pairs(p) for p in pairs])


def _result(item):
    backend, gpus, result = _backend(item), _gpus(item), item["result"]
    if type(item["world"]) is not int or item["world"] != len(gpus):
        raise ValueError("world %r of %d GPUs" % (item["world"], len(gpus)))
    if item["world"] not in WORLDS:
        raise ValueError("a world of %d" % item["world"])
    if result not in RESULTS:
        raise ValueError("result %r" % (result,))
    library = item.get("library", "")
    if not isinstance(library, str):
        raise TypeError("library is not a text")
    return Result(backend, item["world"], gpus, result == "PASS", library)


def _pairs(item):
    gpus, failed = _gpus(item), []
    if not isinstance(item["failed"], list):
        raise TypeError("failed is not a list")
    for pair in item["failed"]:
        if not isinstance(pair, list):
            raise TypeError("a failed pair is not a list")
        a, b = pair
        if a not in gpus or b not in gpus:
            raise ValueError("a failed pair of other GPUs")
        failed.append((a, b))
    return Pairs(_backend(item), gpus, failed)


def _backend(item):
    if item["backend"] not in BACKENDS:
        raise ValueError("backend %r" % (item["backend"],))
    return item["backend"]


def _gpus(item):
    gpus = item["gpus"]
    if not isinstance(gpus, list) or not all(isinstance(uuid, str) for uuid in gpus) or len(set(gpus)) != len(gpus):
        raise TypeError("gpus is not a list of different UUIDs")
    return frozenset(gpus)
