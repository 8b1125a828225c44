"""Which sizes are ours, by what, and when stock is to be had: tables over all that decides."""

import itertools
import logging
import os
import subprocess
import sys
import unittest

import common

sys.path.insert(0, str(common.ROOT / "python"))

from sgl_pcie import choice, flag, machine, profile, verdict  # noqa: E402

GPUS = ["GPU-%d" % i for i in range(8)]
KIB, MIB = 1 << 10, 1 << 20


def made(passed, gpus, pairs=None, level=3):
    """A verdict in which these backends passed on these GPUs together."""
    return verdict.Verdict(
        level,
        {},
        [verdict.Result(b, len(gpus), frozenset(gpus), True) for b in passed],
        pairs or [],
    )


def table(world, *entries, gpus=None):
    return profile.Table(world, frozenset(gpus or GPUS[:world]), tuple(profile.Entry(*e) for e in entries))


class Flag(unittest.TestCase):
    """flag.decide() where there is a verdict; without one tests/runtime/flag.py has the table."""

    def test_with_a_fresh_verdict(self):
        fresh = made(["host"], GPUS[:4])
        for value, backend, built in itertools.product(
            (None, "0", "1", "unsafe", "2"), ("auto", "peer", "host", "upstream", "nccl"), (True, False)
        ):
            with self.subTest(value=value, backend=backend, built=built):
                told = flag.decide(value, backend, built, fresh)
                if value not in ("1", "unsafe") or backend == "nccl":
                    action = flag.STOCK
                elif backend == "upstream":
                    action = flag.UPSTREAM
                else:
                    action = flag.COMMUNICATOR if built else flag.STOCK
                self.assertEqual(told.action, action)
                # What is unsafe says so and stands behind no verdict, even if there is one.
                self.assertIs(told.verdict, fresh if value == "1" and action != flag.STOCK else None)
                if action != flag.STOCK:
                    self.assertEqual(told.level, logging.WARNING if value == "unsafe" else logging.INFO)

    def test_without_one_the_reason_is_said(self):
        told = flag.decide("1", "auto", True, None, "the verdict is stale: driver was 1, is 2")
        self.assertEqual((told.action, told.level), (flag.STOCK, logging.WARNING))
        self.assertIn("driver was 1, is 2", told.reason)


class Choose(unittest.TestCase):
    def expected(self, backend, passed, proved, nvlink):
        """The rule in other words: what transport start values are taken for; None: stock."""
        if backend == "auto" and nvlink is not False:
            return None
        if not proved:
            return "push" if backend == "peer" else "host"
        order = {"auto": ("push", "pull", "host"), "peer": ("push", "pull"), "host": ("host",)}[backend]
        return next((t for t in order if t in passed), None)

    def test_truth_table(self):
        rows = 0
        backends = ("push", "pull", "host", "upstream")
        for world in range(2, 9):
            uuids = GPUS[:world]
            for backend, nvlink, proved, size in itertools.product(
                ("auto", "peer", "host"), (True, False, None), (True, False), range(5)
            ):
                for passed in itertools.combinations(backends, size) if proved and size < 5 else [()]:
                    rows += 1
                    told = made(passed, uuids) if proved else None
                    with self.subTest(backend=backend, nvlink=nvlink, passed=passed, proved=proved, world=world):
                        expected = self.expected(backend, passed, proved, nvlink)
                        if expected is None:
                            with self.assertRaises(choice.Refused):
                                choice.choose(backend, uuids, told, (), nvlink)
                            continue
                        taken = choice.choose(backend, uuids, told, (), nvlink)
                        self.assertEqual(taken.entries, profile.start(expected, world))
                        self.assertEqual(taken.transports(), {expected})
                        self.assertEqual("nothing was proved" in taken.basis, not proved)
        self.assertGreater(rows, 1000)

    def test_the_reason_names_what_to_do(self):
        with self.assertRaisesRegex(choice.Refused, "NVLink joins.*SGLANG_PCIE_AR_BACKEND"):
            choice.choose("auto", GPUS[:4], None, (), True)
        with self.assertRaisesRegex(choice.Refused, "cannot tell"):
            choice.choose("auto", GPUS[:4], None, (), None)
        with self.assertRaisesRegex(choice.Refused, "no PASS for backend peer on these 4 GPUs"):
            choice.choose("peer", GPUS[:4], made(["host"], GPUS[:4]), (), None)

    def test_a_measured_profile(self):
        host = table(4, (64 * KIB, "host-one-shot", 4, 128), (128 * KIB, "stock"), (MIB, "host-two-shot"))
        mixed = table(4, (64 * KIB, "push-one-shot"), (MIB, "host-two-shot"))
        tables = (mixed, host)
        for passed, taken in ((["push", "host"], mixed), (["host"], host), (["pull"], None)):
            told = choice.choose("auto", GPUS[:4], made(passed, GPUS[:4]), tables, False)
            self.assertEqual(told.entries, taken.entries if taken else profile.start("pull", 4))
            self.assertIn("as measured here" if taken else "start values", told.basis)
        self.assertEqual(choice.choose("host", GPUS[:4], None, tables, None).entries, host.entries)

    def test_a_profile_that_gives_all_to_stock(self):
        with self.assertRaisesRegex(choice.Refused, "every size to stock"):
            choice.choose("host", GPUS[:2], None, (table(2, (MIB, "stock")),), None)


class Select(unittest.TestCase):
    def test_exact_gpus_before_others_of_the_machine(self):
        other = table(2, (1, "host-one-shot"), gpus=GPUS[2:4])
        exact = table(2, (2, "host-one-shot"), gpus=GPUS[:2])
        self.assertEqual(profile.select((other, exact), GPUS[:2], ["host"]), exact.entries)
        self.assertEqual(profile.select((other, exact), GPUS[1::-1], ["host"]), exact.entries, "in any order")
        self.assertEqual(profile.select((other, exact), GPUS[4:6], ["host"]), other.entries)
        self.assertIsNone(profile.select((other, exact), GPUS[:3], ["host"]))
        self.assertIsNone(profile.select((other, exact), GPUS[:2], ["push"]))


class Windows(unittest.TestCase):
    def test_truth_table(self):
        ours, stock = "host-one-shot", "stock"
        for entries, windows in (
            ([(10, ours)], ((-1, 10),)),
            ([(10, ours), (20, ours)], ((-1, 20),)),
            ([(10, ours), (20, stock)], ((-1, 10),)),
            ([(10, stock), (20, ours)], ((10, 20),)),
            ([(10, ours), (20, stock), (30, ours), (40, ours)], ((-1, 10), (20, 40))),
            ([(10, stock)], ()),
        ):
            self.assertEqual(profile.windows([profile.Entry(*e) for e in entries]), windows)

    def test_every_size_by_its_entry(self):
        """windows() against the plain reading of the table, size by size."""
        algorithms = ("stock", "host-one-shot", "host-two-shot")
        for made_of in itertools.product(algorithms, repeat=4):
            entries = [profile.Entry(3 * i, a) for i, a in enumerate(made_of)]
            windows = profile.windows(entries)
            for size in range(12):
                by = next((e.algorithm for e in entries if size <= e.max_bytes), "stock")
                self.assertEqual(any(a < size <= b for a, b in windows), by != "stock", (made_of, size))


class ForLibrary(unittest.TestCase):
    NUMBERS = {name: i for i, name in enumerate(("auto",) + profile.ALGORITHMS)}

    def test_it_has_no_end(self):
        """Compiled code may have settled on us for one size and bring another: every size must find an entry."""
        for transport in profile.TRANSPORTS:
            for world in range(2, 9):
                choices = profile.for_library(profile.start(transport, world), self.NUMBERS)
                sizes = [c[0] for c in choices]
                self.assertEqual(sizes, sorted(set(sizes)))
                self.assertEqual(sizes[-1], profile.SIZE_MAX)
                self.assertIn("two-shot", [n for n, i in self.NUMBERS.items() if i == choices[-1][1]][0])

    def test_stock_entries_are_left_out(self):
        entries = table(
            4, (1, "host-one-shot", 2, 32), (2, "stock"), (profile.SIZE_MAX, "host-two-shot-chunked")
        ).entries
        n = self.NUMBERS
        self.assertEqual(
            profile.for_library(entries, n),
            [(1, n["host-one-shot"], 2, 32), (profile.SIZE_MAX, n["host-two-shot-chunked"], 0, 0)],
        )


class Start(unittest.TestCase):
    def test_rising_and_bounded(self):
        for transport, world in itertools.product(profile.TRANSPORTS, range(2, 9)):
            entries = profile.start(transport, world)
            sizes = [e.max_bytes for e in entries]
            self.assertEqual(sizes, sorted(set(sizes)))
            self.assertLessEqual(sizes[-1], 2 * MIB)
            self.assertTrue(all(profile.transport(e.algorithm) == transport for e in entries))
            self.assertLessEqual(profile.sentinel_bytes(entries, world), 2 * MIB)

    @unittest.skipIf("SP_BOXES" not in os.environ, "only from ctest")
    def test_the_boxes_are_large_enough(self):
        """libpar.so refuses an entry above its algorithm's limit, and all ranks would take stock."""
        asked, wanted = [], []
        entries_of = [(t, w, profile.start(t, w)) for t in profile.TRANSPORTS for w in range(2, 9)]
        for size in (1, 12345, 96 * KIB, MIB, 3 * MIB + 16):
            entries_of += [
                (t, w, (profile.Entry(size, n),)) for n in profile.ALGORITHMS for t in ("",) for w in range(2, 9)
            ]
        for _, world, entries in entries_of:
            for entry in entries:
                for lanes in (1, 7, 64, 128):
                    asked.append(
                        "%s %d %d %d" % (entry.algorithm, world, lanes, profile.sentinel_bytes(entries, world))
                    )
                    wanted.append(entry.max_bytes)
        done = subprocess.run(
            [os.environ["SP_BOXES"]], input="\n".join(asked), capture_output=True, text=True, check=True
        )
        limits = [int(line) for line in done.stdout.split()]
        self.assertEqual(len(limits), len(wanted))
        for question, limit, size in zip(asked, limits, wanted):
            self.assertGreaterEqual(limit, size, question)

    def test_as_documented(self):
        """docs/formats.md has them as a table."""
        text = (common.ROOT / "docs" / "formats.md").read_text()
        rows = [r.strip("|").split("|") for r in text.split("| world |")[1].split("\n\n")[0].splitlines()[2:]]
        for world, *cells in ([c.strip() for c in row] for row in rows):
            for transport, cell in zip(("host", "push", "pull"), cells):
                for n in {"2": [2], "3, 4": [3, 4], "5 to 8": [5, 6, 7, 8]}[world]:
                    self.assertEqual(cell, self.words(profile.start(transport, n)), (world, transport))

    def words(self, entries):
        sized = lambda n: "%d MiB" % (n >> 20) if n >= MIB else "%d KiB" % (n >> 10)  # noqa: E731
        shape = lambda a: "chunked" if a.endswith("chunked") else a.partition("-")[2]  # noqa: E731
        return ", ".join("%s to %s" % (shape(e.algorithm), sized(e.max_bytes)) for e in entries)


class Covers(unittest.TestCase):
    def setUp(self):
        self.all = frozenset(GPUS)

    def result(self, backend, gpus, passed):
        return verdict.Result(backend, len(gpus), frozenset(gpus), passed)

    def test_exactly_these_gpus_decide(self):
        for passed in (True, False):
            told = verdict.Verdict(
                3, {}, [self.result("host", GPUS[:4], passed)], [verdict.Pairs("host", self.all, [])]
            )
            self.assertEqual(told.covers("host", GPUS[3::-1]), passed)
        both = [self.result("host", GPUS[:4], True), self.result("host", GPUS[:4], False)]
        self.assertFalse(verdict.Verdict(3, {}, both, []).covers("host", GPUS[:4]), "one FAIL is enough")

    def test_a_subset_needs_its_pairs_and_the_world_size(self):
        world4 = self.result("push", GPUS[:4], True)
        for pairs, results, subset, covered in (
            ([verdict.Pairs("push", self.all, [])], [world4], GPUS[4:], True),
            ([verdict.Pairs("push", self.all, [])], [world4], GPUS[2:6], True),
            ([verdict.Pairs("push", self.all, [])], [world4], GPUS[:3], False),  # that world size was not run
            ([], [world4], GPUS[4:], False),
            ([verdict.Pairs("pull", self.all, [])], [world4], GPUS[4:], False),
            ([verdict.Pairs("push", self.all, [(GPUS[5], GPUS[6])])], [world4], GPUS[4:], False),
            ([verdict.Pairs("push", self.all, [(GPUS[0], GPUS[6])])], [world4], GPUS[4:], True),
            ([verdict.Pairs("push", frozenset(GPUS[:6]), [])], [world4], GPUS[4:], False),
            ([verdict.Pairs("push", frozenset(GPUS[4:]), [])], [world4], GPUS[4:], False),  # proved elsewhere
            ([verdict.Pairs("push", self.all, [])], [world4._replace(passed=False)], GPUS[4:], False),
            ([verdict.Pairs("push", self.all, [])], [world4._replace(backend="pull")], GPUS[4:], False),
        ):
            told = verdict.Verdict(3, {}, results, pairs)
            with self.subTest(pairs=pairs, results=results, subset=subset):
                self.assertEqual(told.covers("push", subset), covered)

    def test_unknown_gpus(self):
        self.assertFalse(made(["host"], GPUS[:2]).covers("host", ["GPU-9", machine.UNREADABLE]))


if __name__ == "__main__":
    unittest.main()
