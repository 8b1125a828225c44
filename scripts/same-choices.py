#!/usr/bin/env python3
"""Whether two runs of `sgl-pcie bench` on one machine chose the same, but for what lies inside the noise.

    scripts/same-choices.py STATE STATE      folders with profile.json and bench.json

Prints a line for each size at which the choices differ. Exit code 1: a difference is larger than the noise of both runs
(docs/bench.md: the spreads of the two figures together, and at least 3 % of the slower).
"""

import json
import pathlib
import sys

LEAST = 0.03


def load(folder):
    return [json.loads((pathlib.Path(folder) / name).read_text()) for name in ("profile.json", "bench.json")]


def choices(profile):
    """Algorithm by (table, size): tables come in the same order in every profile of a machine."""
    tables = profile["tables"]
    return {(n, entry["max_bytes"]): entry["algorithm"] for n, table in enumerate(tables) for entry in table["entries"]}


def figures(bench, size):
    """(us, spread) by algorithm and rival, where each size was measured first: in bf16. Inside a step, where that is known."""
    row = next(row for group in bench["groups"] for row in group["rows"] if row["bytes"] == size)
    found = {one["algorithm"]: one for one in row["ours"]} | {"stock": {r["name"]: r for r in row["rivals"]}[row["stock"]]}
    return {name: (one["step_us"] or one["graph_us"], one["spread_us"]) for name, one in found.items()}


def equal(bench, size, names):
    (a, spread_a), (b, spread_b) = (figures(bench, size)[name] for name in names)
    return abs(a - b) <= max(spread_a + spread_b, LEAST * max(a, b)), "%s %.2f us, %s %.2f us" % (names[0], a, names[1], b)


def main():
    if len(sys.argv) != 3:
        print(__doc__.splitlines()[2].strip(), file=sys.stderr)
        return 2
    (first, first_bench), (second, second_bench) = map(load, sys.argv[1:])
    before, after = choices(first), choices(second)
    bad = before.keys() != after.keys()
    for key in sorted(before.keys() & after.keys()):
        names = before[key], after[key]
        if names[0] != names[1]:
            tried = [equal(bench, key[1], names) for bench in (first_bench, second_bench)]
            noise = any(ok for ok, _ in tried)
            bad |= not noise
            print("table %d, %d bytes: %s: %s" % (*key, "noise" if noise else "NOT noise", "; then ".join(t for _, t in tried)))
    print("%d of %d choices are the same" % (sum(before[k] == after.get(k) for k in before), len(before)))
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
