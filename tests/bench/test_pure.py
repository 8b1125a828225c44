"""What follows from measurements: choices, tables, steps, sentences; and what is refused, by name."""

import copy
import itertools
import json
import pathlib
import random
import subprocess
import tempfile
import unittest

from bench import GPUS, RECORDED, choices, real, schema, tool
from sgl_pcie import profile as reader
from sgl_pcie import verdict as verdicts

TIMES = ("graph_us", "in_place_us", "step_us", "eager_us", "spread_us")
RATES = ("node_us", "host_us", "peer_us", "host_read_gbs", "host_write_gbs", "host_both_gbs", "peer_read_gbs")
ZERO = {"peer_write_gbs": 0.0, "link_gbs": 0.0, "link_most_gbs": 0.0}


def times(us, spread=0.0):
    return {**{key: us for key in TIMES}, "spread_us": spread}


def ours(algorithm, us, spread=0.0, wrong=0, model=0.0):
    return {"algorithm": algorithm, "lanes": 0, "threads": 0, "wrong": wrong, "model_us": model, **times(us, spread)}


def row(size, stock, *algorithms, spread=0.0, rivals=()):
    rivals = [{"name": "nccl", "wrong": 0, **times(stock, spread)}, *rivals]
    return {"bytes": size, "rivals": rivals, "ours": list(algorithms)}


def bench(*rows, rates=None, tables=None, kind="bf16"):
    group = {
        "world": 2,
        "type": kind,
        "gpus": [{"number": i, "uuid": uuid} for i, uuid in enumerate(GPUS)],
        "rates": {**dict.fromkeys(RATES, 0.0), **ZERO, **(rates or {})},
        "rivals": [],
        "rows": list(rows),
    }
    if tables is not None:
        group["tables"] = tables
    return {"schema": "sgl-pcie-bench/1", "quick": False, "groups": [group]}


def tables(content, expect=0):
    code, out, error = tool("profile", feed=json.dumps(content))
    assert code == expect, error
    if expect:
        return error
    found = json.loads(out)
    schema.validator("profile.schema.json").evolve(schema=table_schema()).validate(found["tables"])
    reader.parse({**found, "bound": {"libpar.so": "0" * 64}})
    return found["tables"]


def table_schema():
    return {"$ref": "profile.schema.json#/properties/tables"}


def chosen(content):
    return [algorithm for _, algorithm in choices(tables(content)[0])]


class Choice(unittest.TestCase):
    def test_ours_must_win_by_more_than_the_noise(self):
        for us, spread, expect in ((9.0, 0.1, "host-one-shot"), (9.8, 0.0, "stock"), (9.69, 0.0, "host-one-shot"),
                                   (9.0, 0.6, "stock"), (10.0, 0.0, "stock"), (11.0, 0.0, "stock"), (0.0, 0.0, "stock")):  # fmt: skip
            with self.subTest(us=us, spread=spread):
                self.assertEqual(chosen(bench(row(4096, 10.0, ours("host-one-shot", us, spread), spread=spread))), [expect])

    def test_without_a_figure_of_stock_nothing_is_ours(self):
        self.assertEqual(chosen(bench(row(4096, 0.0, ours("host-one-shot", 1.0)))), ["stock"])

    def test_the_fastest_where_it_is_clear(self):
        self.assertEqual(
            chosen(bench(row(4096, 10.0, ours("host-two-shot-chunked", 4.0), ours("host-one-shot", 5.0)))),
            ["host-two-shot-chunked"],
        )

    def test_the_simpler_of_two_that_are_equal_but_for_noise(self):
        for a, b in ((5.0, 5.1), (5.1, 5.0)):
            self.assertEqual(
                chosen(bench(row(4096, 10.0, ours("host-two-shot-chunked", a), ours("host-one-shot", b)))),
                ["host-one-shot"],
            )

    def test_one_that_stays_good_for_longer_beats_a_simpler_one(self):
        rows = [
            row(size, 20.0, ours("host-one-shot", one), ours("host-two-shot", 5.0))
            for size, one in ((2048, 4.95), (4096, 7.0), (8192, 9.0))
        ]
        self.assertEqual(chosen(bench(*rows)), ["host-two-shot"] * 3)

    def test_what_served_stays_while_nothing_beats_it_by_the_noise(self):
        entry = {"max_bytes": 4096, "algorithm": "host-two-shot"}
        before = [{"world": 2, "gpus": GPUS, "entries": [entry]}]
        for one, expect in ((4.9, "host-two-shot"), (4.0, "host-one-shot")):
            rows = [row(4096, 20.0, ours("host-one-shot", one), ours("host-two-shot", 5.0))]
            self.assertEqual(chosen(bench(*rows, tables=before)), [expect])
        for stock, expect in ((5.05, "host-two-shot"), (4.99, "stock")):
            self.assertEqual(chosen(bench(row(4096, stock, ours("host-two-shot", 5.0)), tables=before)), [expect])

    def test_v1_is_stock_where_it_was_measured_and_no_p2p_never(self):
        v1 = {"name": "v1", "wrong": 0, **times(4.0)}
        slow = {"name": "nccl-no-p2p", "wrong": 0, **times(30.0)}
        self.assertEqual(chosen(bench(row(4096, 10.0, ours("push-one-shot", 5.0), rivals=[v1, slow]))), ["stock"])
        self.assertEqual(chosen(bench(row(4096, 4.0, ours("push-one-shot", 5.0), rivals=[slow]))), ["stock"])

    def test_a_wrong_one_gives_no_table_at_all(self):
        content = bench(row(4096, 10.0, ours("host-one-shot", 0.0, wrong=3), ours("host-two-shot", 5.0)))
        self.assertEqual(tables(content, expect=7), "host-one-shot gave 3 wrong elements at 4096 bytes on 2 GPUs")

    def test_no_size_at_which_stock_was_faster_is_ever_ours(self):
        dice = random.Random(7)
        for _ in range(60):
            rows = [
                row(
                    1 << power,
                    dice.uniform(3, 9),
                    *(ours(name, dice.uniform(3, 9), dice.uniform(0, 0.3)) for name in dice.sample(reader.ALGORITHMS, 5)),
                    spread=dice.uniform(0, 0.3),
                )
                for power in range(11, 20)
            ]
            content = bench(*rows)
            for table, line in ((t, r) for t in tables(content) for r in rows):
                entry = next(e for e in table["entries"] if e["max_bytes"] == line["bytes"])
                if entry["algorithm"] != "stock":
                    us = next(o["step_us"] for o in line["ours"] if o["algorithm"] == entry["algorithm"])
                    self.assertLess(us, line["rivals"][0]["step_us"])
                    self.assertEqual((entry["us"], entry["stock_us"]), (us, line["rivals"][0]["step_us"]))


class Tables(unittest.TestCase):
    """python/sgl_pcie/profile.py finds in them what each setting may use."""

    def select(self, content, *transports):
        found = reader.parse({"bound": {"libpar.so": ""}, "tables": tables(content)})[0]
        entries = reader.select(found, GPUS, transports)
        return entries and [entry.algorithm for entry in entries]

    def test_auto_peer_and_host(self):
        content = bench(
            row(4096, 10.0, ours("push-one-shot", 3.0), ours("host-one-shot", 4.0)),
            row(8192, 20.0, ours("push-one-shot", 9.0), ours("host-one-shot", 6.0), ours("pull-one-shot", 9.0)),
        )
        self.assertEqual(self.select(content, "push", "pull", "host"), ["push-one-shot", "host-one-shot"])
        self.assertEqual(self.select(content, "push", "pull"), ["push-one-shot", "push-one-shot"])
        self.assertEqual(self.select(content, "host"), ["host-one-shot", "host-one-shot"])
        self.assertEqual(len(tables(content)), 3)

    def test_peers_that_lose_do_not_hide_the_host(self):
        content = bench(row(4096, 10.0, ours("push-one-shot", 30.0), ours("host-one-shot", 4.0)))
        self.assertEqual(self.select(content, "push", "pull", "host"), ["host-one-shot"])
        self.assertEqual(self.select(content, "host"), ["host-one-shot"])
        self.assertEqual(self.select(content, "push", "pull"), ["stock"])

    def test_a_type_with_fewer_sizes_does_not_decide(self):
        content = bench(row(4096, 10.0, ours("host-one-shot", 30.0)), kind="fp32")
        content["groups"] += bench(row(4096, 10.0, ours("host-one-shot", 4.0)), row(8192, 1.0))["groups"]
        self.assertEqual(choices(tables(content)[0]), [(4096, "host-one-shot"), (8192, "stock")])

    def test_what_passed_since_is_not_measured(self):
        def have(content, *backends):
            results = [{"backend": b, "world": 2, "gpus": GPUS, "result": "PASS"} for b in backends]
            pairs = [{"backend": b, "gpus": GPUS, "failed": []} for b in backends]
            with tempfile.NamedTemporaryFile("w") as file:
                json.dump({"tables": tables(content)}, file)
                file.flush()
                feed = json.dumps({"level": 3, "results": results, "pairs": pairs})
                return tool("have", file.name, ",".join(GPUS), feed=feed)[1].strip()

        host, push, pull = ours("host-one-shot", 4.0), ours("push-one-shot", 3.0), ours("pull-one-shot", 30.0)
        every = ("host", "push", "pull")
        for content, passed, expect in (
            ([host], ["host"], "yes"),
            ([host], ["push"], "no"),
            ([host], ["host", "push"], "no"),
            ([push], ["push"], "yes"),
            ([push], ["host", "push"], "no"),
            ([host, push, pull], every, "yes"),
            ([host, pull], ["host", "pull"], "yes"),
            ([ours("host-one-shot", 40.0), pull], ["host", "pull"], "yes"),
        ):
            with self.subTest(content=[o["algorithm"] for o in content], passed=passed):
                self.assertEqual(have(bench(row(4096, 10.0, *content)), *passed), expect)

    def test_merging(self):
        def profile(bound, *gpus):
            entries = [{"max_bytes": 1, "algorithm": "stock"}]
            return {"bound": bound, "tables": [{"world": len(g), "gpus": list(g), "entries": entries} for g in gpus]}

        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder) / name for name in ("before", "after")]

            def merged(before, after):
                for path, content in zip(paths, (before, after)):
                    path.write_text(json.dumps(content))
                code, out, error = tool("merge", *paths)
                self.assertEqual(code, 0, error)
                return ["".join(table["gpus"]) for table in json.loads(out)["tables"]]

            same = {"libpar.so": "1"}
            self.assertEqual(merged(profile(same, "ab", "cd"), profile(same, "ab", "abcd")), ["ab", "abcd", "cd"])
            self.assertEqual(merged(profile({"libpar.so": "2"}, "cd"), profile(same, "ab")), ["ab"])
            self.assertEqual(merged(profile(same, "ba", "dc"), profile(same, "ab")), ["ab", "dc"])


class Shown(unittest.TestCase):
    """bench --from, the whole program."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "bench.json"

    def shown(self, content, *words, expect=0):
        self.path.write_text(content if isinstance(content, str) else json.dumps(content))
        command = [real.CLI, "bench", "--from", self.path, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        if "--json" in words:
            schema.validate(json.loads(done.stdout))
        return done.stdout + done.stderr

    def test_steps_lie_between_their_neighbours(self):
        content = bench(row(4096, 10.0, ours("host-one-shot", 5.0)), row(16384, 40.0, ours("host-one-shot", 10.0)))
        (step,) = json.loads(self.shown(content, "--step", "100x8192", "--json"))["steps"]
        self.assertFalse(step["measured"])
        self.assertAlmostEqual(step["stock_ms"], 2.0, 3)  # the geometric mean, half way between in logarithms
        self.assertAlmostEqual(step["ours_ms"], 100 * 50**0.5 / 1e3, 3)
        self.assertIn("ours (host) between sizes that were measured", step["sentence"])
        (step,) = json.loads(self.shown(content, "--step", "100x128", "--json"))["steps"]
        self.assertEqual((step["stock_ms"], step["ours_ms"]), (1.0, 0.5))
        self.assertIn("as at the smallest size that was measured", step["sentence"])
        (step,) = json.loads(self.shown(content, "--step", "100x32K", "--json"))["steps"]
        self.assertEqual((step["stock_ms"], step["saved_ms"]), (None, None))
        self.assertIn("not known", step["sentence"])

    def test_a_step_by_each_table(self):
        content = bench(row(4096, 10.0, ours("push-one-shot", 2.0), ours("host-one-shot", 4.0)))
        steps = json.loads(self.shown(content, "--step", "1000x4096", "--json"))["steps"]
        self.assertEqual([(s["backends"], s["stock_ms"], s["ours_ms"]) for s in steps], [("push", 10.0, 2.0), ("host", 10.0, 4.0)])
        content = bench(row(4096, 10.0, ours("push-one-shot", 20.0), ours("host-one-shot", 4.0)))
        steps = json.loads(self.shown(content, "--step", "1000x4096", "--json"))["steps"]
        self.assertEqual([(s["backends"], s["ours_ms"], s["served"]) for s in steps], [("host", 4.0, True), ("stock", 10.0, False)])

    def test_break_even(self):
        small, large = row(4096, 10.0, ours("host-one-shot", 5.0)), row(16384, 9.0, ours("host-one-shot", 10.0))
        self.assertIn("ours pays to 4 KiB, the break-even lies below 16 KiB.", self.shown(bench(small, large), "--step", "1x4K"))
        hole = bench(small, large, row(65536, 90.0, ours("host-one-shot", 50.0)))
        self.assertIn("ours pays to 4 KiB and above 16 KiB to 64 KiB, the largest size", self.shown(hole, "--step", "1x4K"))
        self.assertIn("ours pays to 4 KiB, the largest size that was measured.", self.shown(bench(small), "--step", "1x4K"))
        told = self.shown(bench(large), "--step", "1x16K")
        self.assertIn("0.01 ms with stock, and stock stays: nothing is saved; stock is as fast at every size", told)

    def test_where_stock_stays_that_is_said_of_the_backend(self):
        content = bench(
            row(4096, 10.0, ours("push-one-shot", 2.0), ours("host-one-shot", 4.0)),
            row(8192, 10.0, ours("push-one-shot", 2.0), ours("host-one-shot", 12.0)),
        )
        told = self.shown(content, "--step", "100x8K")
        self.assertIn("with ours (push), ", told)
        self.assertIn("1.00 ms with stock, and stock stays where ours is host: nothing is saved; ours pays to 4 KiB, ", told)

    def test_without_a_figure_of_stock_nothing_is_said_of_who_is_faster(self):
        line = row(4096, 10.0, ours("host-one-shot", 5.0))
        for content in (bench(), {**bench(), "groups": []}, bench({**line, "rivals": []})):
            told = self.shown(content, "--step", "1x4K", expect=1)
            self.assertIn("stock was not measured: there is nothing to compare with", told)
        self.assertNotIn("all-reduces", self.shown({**bench(), "groups": []}, "--step", "1x4K", expect=1))
        told = self.shown(bench(row(4096, 1.0, ours("host-one-shot", 5.0))))
        self.assertIn("stock was as fast at every size that was measured\n", told)

    def test_models(self):
        content = bench(*(row(1 << p, float(1 << p) / 1e3, ours("host-one-shot", (1 << p) / 2e3)) for p in range(11, 25)))
        words = "hidden=5120,layers=64,batch=1-24,draft=5"
        steps = json.loads(self.shown(content, "--model", words, "--json"))["steps"]
        self.assertEqual([step["step"] for step in steps], ["batch %d" % b for b in (1, 2, 4, 8, 16, 24)])
        self.assertEqual(steps[0]["parts"], [{"times": 129, "bytes": 51200}])
        self.assertEqual(steps[-1]["parts"], [{"times": 129, "bytes": 24 * 51200}])
        self.assertAlmostEqual(steps[-1]["stock_ms"], 129 * 24 * 51.2 / 1e3, 2)
        self.assertAlmostEqual(steps[-1]["saved_ms"], 129 * 24 * 51.2 / 2e3, 2)

    def test_troubles_are_named(self):
        good = {"node_us": 0.5, "host_us": 1.7, "host_read_gbs": 50.0, "host_write_gbs": 51.0, "host_both_gbs": 57.0,
                "peer_us": 1.0, "peer_read_gbs": 40.0, "peer_write_gbs": 50.0, "link_gbs": 63.0, "link_most_gbs": 63.0}  # fmt: skip
        line = row(4096, 10.0, ours("host-one-shot", 5.0, model=4.0), ours("push-one-shot", 4.0, model=3.0))
        for change, sentence in (
            ({}, None),
            ({"link_gbs": 31.5, "host_read_gbs": 25.0, "host_write_gbs": 26.0}, "the narrowest link carries 32 of 63 GB/s"),
            ({"host_us": 5.2}, "5.2 us one way through host memory"),
            ({"host_read_gbs": 20.0}, "another NUMA node, or GPUs that share a link"),
            ({"peer_write_gbs": 3.1}, "posted writes collapse"),
            ({"link_gbs": 0.0, "link_most_gbs": 0.0}, None),
        ):
            with self.subTest(change):
                told = json.loads(self.shown(bench(line, rates={**good, **change}), "--json"))["bench"]["troubles"]
                self.assertEqual(len(told), 1 if sentence else 0, told)
                self.assertIn(sentence or "", "".join(told))
        slow = row(4096, 100.0, ours("host-one-shot", 50.0, model=4.0))
        told = json.loads(self.shown(bench(slow, rates=good), "--json"))["bench"]["troubles"]
        self.assertIn("host takes 50 us at 4 KiB, the links allow 4", told[0])

    def test_long_text_is_cut_between_characters(self):
        for pad in range(4):
            name = "x" * pad + "\U0001f600" * 100
            told = json.loads(self.shown({**bench(row(4096, 10.0)), "gpu": name}, "--json"))["bench"]
            self.assertEqual(told["gpu"], name[: pad + (255 - pad) // 4])

    def test_where_stock_is_wrong_that_is_said(self):
        v1 = {"name": "v1", "wrong": 17, **times(0.0)}
        content = bench(row(4096, 10.0, ours("push-one-shot", 5.0), rivals=[v1]), row(8192, 12.0, ours("push-one-shot", 5.0)))
        (told,) = json.loads(self.shown(content, "--json"))["bench"]["troubles"]
        self.assertIn("2 GPUs: v1 gives wrong elements at 1 of 2 sizes, 17 at 4 KiB", told)

    def test_a_wrong_one_is_exit_7_here_too(self):
        content = bench(row(4096, 10.0, ours("host-one-shot", 0.0, wrong=3), ours("host-two-shot", 5.0)))
        self.assertIn("host-one-shot gave 3 wrong elements", self.shown(content, expect=7))

    def test_malformed_is_refused_by_name(self):
        good = bench(row(4096, 10.0, ours("host-one-shot", 5.0)))
        self.shown(good)

        def edit(change):
            content = copy.deepcopy(good)
            change(content, content["groups"][0], content["groups"][0]["rows"][0])
            return content

        text = json.dumps(good)
        for content, reason in (
            (text[:-20], "is not valid JSON"),
            ("[]", "is not a JSON object"),
            (text.replace("5.0", "NaN"), "is not valid JSON"),
            (text.replace("5.0", "1e999"), "is not valid JSON"),
            (text.replace("5.0", "-5.0"), "groups 0: rows 0: ours 0: field 'graph_us' is not a number from 0 to 1e+12"),
            (text.replace("5.0", "1e300"), "ours 0: field 'graph_us' is not a number from 0 to 1e+12"),
            (text.replace("5.0", '"5.0"'), "ours 0: field 'graph_us' is not a number from 0 to 1e+12"),
            (text.replace("host-one-shot", "host-three-shot"), "algorithm 'host-three-shot' is not known"),
            (text.replace("bf16", "int8"), "type 'int8' is not known"),
            (text.replace('"nccl"', '"rccl"'), "rivals 0: rival 'rccl' is not known"),
            (edit(lambda c, g, r: c.pop("groups")), "field 'groups' is missing"),
            (edit(lambda c, g, r: c.update(schema="sgl-pcie-bench/9")), "schema 'sgl-pcie-bench/9' is not"),
            (edit(lambda c, g, r: g.pop("world")), "groups 0: field 'world' is missing"),
            (edit(lambda c, g, r: g.update(world=3)), "groups 0: world 3 of 2 GPUs"),
            (edit(lambda c, g, r: g.update(world=9)), "field 'world' is 9, not within 2 to 8"),
            (edit(lambda c, g, r: g["rates"].pop("node_us")), "rates: field 'node_us' is missing"),
            (edit(lambda c, g, r: r.pop("bytes")), "rows 0: field 'bytes' is missing"),
            (edit(lambda c, g, r: r.update(bytes=0)), "field 'bytes' is 0, not within"),
            (edit(lambda c, g, r: r["ours"][0].pop("step_us")), "ours 0: field 'step_us' is missing"),
            (edit(lambda c, g, r: r["ours"][0].pop("wrong")), "ours 0: field 'wrong' is missing"),
            (edit(lambda c, g, r: r["ours"].append(r["ours"][0])), "ours 1: algorithm 'host-one-shot' is there twice"),
            (edit(lambda c, g, r: r.update(ours={})), "field 'ours' is not a list"),
            (edit(lambda c, g, r: r["ours"][0].update(threads=3)), "ours 0: field 'threads' is 3, no multiple of 32"),
            (edit(lambda c, g, r: g["gpus"][1].update(uuid=GPUS[0])), "groups 0: gpus: '%s' is there twice" % GPUS[0]),
        ):
            with self.subTest(reason):
                told = self.shown(content, expect=1)
                self.assertIn(reason, told)
                self.assertIn(str(self.path), told)


class Stream(unittest.TestCase):
    """Lines of the program for GPUs."""

    ROW = {
        "kind": "row", "by": "ours", "name": "host-one-shot", "dtype": "bf16", "bytes": 4096, "world": 2, "wrong": 0,
        "graph": {"us": 5.0, "p10": 4.9, "p90": 5.1}, "step": None, "eager": None, "in_place": None, "cut": None, "model_us": None,
    }  # fmt: skip

    def read(self, *lines, expect=0):
        feed = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
        code, out, error = tool("rows", ",".join(GPUS), feed=feed)
        self.assertEqual(code, expect, error)
        return json.loads(out) if expect == 0 else error

    def test_recorded_runs(self):
        """Of two H200; the choices were looked at once, and are so for good. One without any was made wrong."""
        found = sorted(RECORDED.glob("*.jsonl"))
        self.assertTrue(found)
        for path in found:
            with self.subTest(path.name):
                text, kept = path.read_text(), path.with_suffix(".choices.json")
                if not kept.exists():
                    self.assertEqual(self.read(text, expect=7), "push-one-shot gave 4 wrong elements at 4096 bytes on 2 GPUs")
                    continue
                content = self.read(text)
                rows = [line for line in map(json.loads, text.splitlines()) if line["kind"] == "row"]
                measured = {(row["dtype"], row["bytes"], row["name"]) for row in rows}
                names = ("ours", "algorithm"), ("rivals", "name")
                found = {
                    (group["type"], row["bytes"], item[key])
                    for group in content["groups"]
                    for row in group["rows"]
                    for list_, key in names
                    for item in row[list_]
                }
                self.assertLessEqual(measured, found)
                expected = json.loads(kept.read_text())
                self.assertEqual([choices(table) for table in tables(content)], [[tuple(e) for e in t] for t in expected])

    def test_malformed_is_refused_by_line_and_name(self):
        good = json.dumps(self.ROW)
        self.read(good)
        self.read(good, '{"kind": "news"}', '{"kind": "end"}')
        for line, reason in (
            (good[:-5], "'line 2' is not valid JSON"),
            (good.replace("5.0", "NaN"), "'line 2' is not valid JSON"),
            ("{}", "line 2: field 'kind' is missing"),
            ({**self.ROW, "bytes": -1}, "line 2: field 'bytes' is -1"),
            ({**self.ROW, "bytes": "4K"}, "line 2: field 'bytes' is not an integer"),
            ({**self.ROW, "world": 4}, "line 2: field 'world' is 4"),
            ({**self.ROW, "dtype": "int4"}, "line 2: type 'int4' is not known"),
            ({**self.ROW, "name": "host-four-shot"}, "line 2: algorithm 'host-four-shot' is not known"),
            ({**self.ROW, "by": "rccl", "name": "rccl"}, "line 2: rival 'rccl' is not known"),
            (self.ROW, "line 2: algorithm 'host-one-shot' is there twice"),
            ({**self.ROW, "bytes": 8, "graph": {"us": -1}}, "line 2: field 'graph': field 'us' is not a number from 0 to 1e+12"),
            ({**self.ROW, "bytes": 8, "step": {"us": 1}}, "line 2: field 'step': field 'p90' is missing"),
            ({key: value for key, value in self.ROW.items() if key != "eager"} | {"bytes": 8}, "line 2: field 'eager' is missing"),
        ):
            with self.subTest(reason):
                self.assertIn(reason, self.read(good, line, expect=1))


class Covers(unittest.TestCase):
    def test_as_sglang_reads_a_verdict(self):
        dice = random.Random(3)
        gpus = ["a", "b", "c", "d"]
        pairs = list(itertools.permutations(gpus, 2))
        for _ in range(150):
            content = {
                "level": 3,
                "bound": {"driver": "1", "gpu 0": "a", "libpar.so": "x"},
                "results": [
                    {"backend": "push", "world": len(group), "gpus": group, "result": dice.choice(verdicts.RESULTS)}
                    for group in (dice.sample(gpus, dice.randint(2, 4)) for _ in range(dice.randint(0, 4)))
                ],
                "pairs": [
                    {"backend": dice.choice(["push", "host"]), "gpus": gpus, "failed": dice.sample(pairs, dice.randint(0, 3))}
                    for _ in range(dice.randint(0, 2))
                ],
            }
            asked = dice.sample(gpus, dice.randint(2, 4))
            expected = verdicts.parse(json.loads(json.dumps(content))).covers("push", asked)
            code, out, error = tool("covers", "push", ",".join(asked), feed=json.dumps(content))
            self.assertEqual((code, out.strip()), (0, "yes" if expected else "no"), error)


if __name__ == "__main__":
    unittest.main()
