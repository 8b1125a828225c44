"""Which table of a profile serves a group by a verdict: enable, status and setup must see what SGLang will do, so both
sides are asked the same, many times over."""

import json
import os
import random
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
sys.dont_write_bytecode = True

from sgl_pcie import choice, profile, verdict  # noqa: E402

FASTER, AS_STOCK, UNMEASURED, NOT = range(4)
GPUS = ["GPU-%d" % number for number in range(4)]
MANY = 3000


class Random:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def group(self):
        return self.random.sample(GPUS, self.random.choice((2, 2, 3, 4)))

    def entry(self, bytes_, algorithms):
        algorithm = self.random.choice(algorithms)
        us = {} if algorithm == "stock" else {"us": self.random.choice((6.0, 15.0))}
        return {"max_bytes": bytes_, "algorithm": algorithm, "stock_us": 15.0, **us}

    def table(self):
        gpus = self.group()
        kinds = self.random.sample(profile.TRANSPORTS, self.random.choice((1, 1, 2, 3)))
        algorithms = ["stock", *("%s-one-shot" % kind for kind in kinds)]
        entries = [self.entry(1024 << i, algorithms) for i in range(self.random.randint(1, 3))]
        return {"world": len(gpus), "gpus": gpus, "entries": entries}

    def profile(self):
        return {"bound": {"libpar.so": "0"}, "tables": [self.table() for _ in range(self.random.randint(0, 4))]}

    def result(self):
        gpus = self.group()
        result = self.random.choice(("PASS", "PASS", "FAIL", "INCONCLUSIVE"))
        return {"backend": self.random.choice(verdict.BACKENDS), "world": len(gpus), "gpus": gpus, "result": result}

    def pairs(self):
        failed = [self.random.sample(GPUS, 2)] if self.random.random() < 0.4 else []
        return {"backend": self.random.choice(verdict.BACKENDS), "gpus": GPUS, "failed": failed}

    def verdict(self):
        bound = {"libpar.so": "0", "driver": "1", "gpu 0": GPUS[0]}
        results = [self.result() for _ in range(self.random.randint(1, 5))]
        pairs = [self.pairs() for _ in range(self.random.randint(0, 2))]
        return {"bound": bound, "level": 3, "results": results, "pairs": pairs}


def served(content, tables, proved, group):
    """As SGLang has it: what choice.choose() does for this group, and by which table."""
    usable = [backend for backend in choice.CANDIDATES["auto"] if proved.covers(backend, group)]
    if not usable:
        return NOT, -1
    entries = profile.select(tables, group, usable)
    if entries is None:
        return UNMEASURED, -1
    at = next(i for i, table in enumerate(tables) if table.entries is entries)
    ours = [e for e in content["tables"][at]["entries"] if e["algorithm"] != "stock"]
    return FASTER if any(e["us"] < e["stock_us"] for e in ours) else AS_STOCK, at


class Serve(unittest.TestCase):
    def test_both_sides_agree(self):
        made = Random(1)
        cases = [(made.profile(), made.verdict(), made.group()) for _ in range(MANY)]
        lines = "".join(json.dumps(case) + "\n" for case in cases)
        done = subprocess.run([os.environ["VERDICT_BOUND"], "serve"], input=lines, capture_output=True, text=True, check=True)
        seen = set()
        for case, line in zip(cases, done.stdout.splitlines()):
            content, proved = case[0], verdict.parse(case[1])
            tables, _ = profile.parse(content)
            groups = [table["gpus"] for table in content["tables"]] + [r["gpus"] for r in case[1]["results"]]
            group, at = served(content, tables, proved, case[2])
            best = min(served(content, tables, proved, other)[0] for other in groups)
            self.assertEqual(line, "%d %d %d" % (group, at, best), case)
            seen.add((group, best))
        self.assertEqual({group for group, _ in seen}, {FASTER, AS_STOCK, UNMEASURED, NOT})
        self.assertEqual({best for _, best in seen}, {FASTER, AS_STOCK, UNMEASURED, NOT})


if __name__ == "__main__":
    unittest.main()
