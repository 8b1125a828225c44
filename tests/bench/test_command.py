"""bench as a command: what it writes, what it refuses, what it leaves alone."""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
import unittest

from bench import FOUR, GPUS, HERE, Bench, choices, real, schema, verdict

READ = (
    "from sgl_pcie import profile, machine; t, why = profile.load(machine.read()); assert not why, why; "
    "print([tuple(e) for e in profile.select(t, %r, %r)])"
)


class Written(Bench):
    def setUp(self):
        super().setUp()
        self.prove()

    def test_a_profile_that_sglang_reads_and_enable_accepts(self):
        self.assertIn("no profile", self.cli("enable", "--site", self.site, expect=1))
        told = self.bench()
        self.assertEqual(told["profile"]["path"], str(self.file("profile.json")))
        self.assertIn("ours is faster: 2 GPUs: to 16 MiB", told["message"])
        self.assertIn("enable --site", told["next"])
        profile = self.profile()
        schema.validator("profile.schema.json").validate(profile)
        self.assertEqual(profile["bound"], self.bound(self.site))
        read = self.python(self.site, READ % (GPUS, ["push", "pull", "host"]))
        self.assertIn("push-one-shot", read)
        read = self.python(self.site, READ % (GPUS, ["host"]))
        self.assertIn("host-one-shot", read)
        self.assertNotIn("push", read)
        self.assertIn("enabled for", self.cli("enable", "--site", self.site))

    def test_a_place_that_cannot_be_written_is_said_before_measuring(self):
        (folder,) = self.state.iterdir()
        folder.chmod(0o555)
        self.addCleanup(folder.chmod, 0o755)
        unprivileged = HERE.parent / "cli" / "bin" / "unprivileged"
        for command in ("bench", "verify"):
            done = self.run_in([unprivileged, real.CLI, command, "--site", self.site], FAKE_BENCH="die:1")
            self.assertEqual(done.returncode, 5, done.stderr)
            self.assertIn("cannot write into '%s': Permission denied" % folder, done.stderr)
            self.assertIn("SGL_PCIE_STATE", done.stderr)
            self.assertEqual(done.stdout, "")
        self.assertEqual([file.name for file in folder.iterdir()], ["verdict.json"])

    def test_the_result_is_kept_and_shown_again(self):
        told = self.bench("--step", "122x43008")
        kept = json.loads(self.file("bench.json").read_text())
        schema.validator("bench-parts.json").evolve(schema={"$ref": "bench-parts.json#/$defs/bench"}).validate(kept)
        self.assertEqual(kept, told["bench"])
        again = json.loads(self.cli("bench", "--from", self.file("bench.json"), "--step", "122x43008", "--json"))
        self.assertEqual(again["bench"]["groups"], told["bench"]["groups"])
        self.assertEqual(again["steps"], told["steps"])

    def test_a_name_gives_the_terminal_no_orders(self):
        self.assertIn("NVIDIA FAKE?[2J", self.cli("bench", "--site", self.site, FAKE_BENCH="name"))
        self.assertNotIn("\033", self.cli("bench", "--from", self.file("bench.json")))

    def test_noisy_runs_choose_the_same(self):
        tables = []
        for seed in range(4):
            self.bench(FAKE_BENCH="noise:%d" % seed)
            tables.append([choices(table) for table in self.profile()["tables"]])
        self.assertEqual(tables, tables[:1] * 4)

    def test_noisy_runs_that_know_nothing_of_each_other(self):
        """They differ only where the two choices are equal but for the noise."""
        runs = []
        for seed in range(10, 14):
            told = self.bench(FAKE_BENCH="noise:%d" % seed, SGL_PCIE_STATE=str(self.copy_of_state(seed)))
            runs.append(told["bench"]["groups"][0]["rows"])
        for one, other in ((a, b) for a in runs for b in runs):
            for row, rival in zip(one, other):
                times = {o["algorithm"]: o["step_us"] for o in row["ours"]}
                mine, theirs = times[row["chosen"]], times[rival["chosen"]]
                self.assertLess(abs(mine - theirs), 0.05 * max(mine, theirs), (row["bytes"], row["chosen"], rival["chosen"]))

    def copy_of_state(self, name):
        state = self.scratch / ("state-%s" % name)
        shutil.copytree(self.state, state)
        return state

    def test_a_slow_algorithm_is_not_chosen(self):
        self.bench()
        self.assertIn("push-one-shot", str(self.profile()["tables"]))
        self.bench(FAKE_BENCH="slow:push-one-shot")
        self.assertNotIn("push-one-shot'", str(self.profile()["tables"]))

    def test_what_was_not_measured_is_said_where_its_figures_would_be(self):
        told = self.cli("bench", "--site", self.site)
        self.assertIn("# v1: not measured: no interpreter was named that could run it", told)
        self.assertNotIn("  v1  ", told)

    def test_where_stock_wins_nothing_is_enabled(self):
        told = self.bench(FAKE_BENCH="stock")
        self.assertEqual(told["message"], "stock is as fast here at every size that was measured")
        self.assertEqual({e["algorithm"] for t in self.profile()["tables"] for e in t["entries"]}, {"stock"})
        self.assertIn("nothing is faster here", self.cli("enable", "--site", self.site, expect=1))

    def test_a_step_is_measured_at_its_own_size(self):
        told = self.bench("--step", "122x50000,1x2K")
        (group,) = told["bench"]["groups"]
        rows = {row["bytes"]: row for row in group["rows"]}
        step = told["steps"][0]
        self.assertTrue(step["measured"])

        def sum_of(of):
            return (122 * of(rows[50000]) + of(rows[2048])) / 1e3

        stock = sum_of(lambda row: row["rivals"][0]["step_us"])
        ours = sum_of(lambda row: next(o["step_us"] for o in row["ours"] if o["algorithm"] == row["chosen"]))
        self.assertAlmostEqual(step["stock_ms"], stock, 6)
        self.assertAlmostEqual(step["ours_ms"], ours, 6)
        self.assertAlmostEqual(step["saved_ms"], stock - ours, 6)
        self.assertIn("%.2f ms saved per step" % (stock - ours), step["sentence"])
        self.assertIn("122 all-reduces of 50000 bytes and 1 all-reduce of 2048 bytes on 2 GPUs", step["sentence"])

    def test_status_tells_of_it(self):
        def status():
            return self.cli("status", "--site", self.site)

        self.assertIn("profile  none for this machine", status())
        self.assertRegex(status(), "proved, not measured: SGLang behaves as stock; next: sgl-pcie bench --site")
        self.bench(FAKE_BENCH="stock")
        self.assertIn("profile  fresh (nothing is faster here)", status())
        self.assertIn("proved, but nothing is faster here than what SGLang does by itself\n", status())
        self.bench()
        self.assertIn("profile  fresh (2 GPUs: to 16 MiB)", status())
        self.assertIn("proved, not enabled: SGLang behaves as stock; next: sgl-pcie enable", status())
        self.prove(["host"])
        self.bench()
        self.prove()
        self.assertIn("profile  fresh (2 GPUs: to 16 MiB, peers not measured)", status())
        self.bench()
        self.cli("enable", "--site", self.site)
        self.assertIn("[ok] enabled: nothing to do", status())
        self.file("profile.json").write_text("{")
        self.assertRegex(status(), "enabled, but not measured as it is now: start values choose; next: sgl-pcie bench")
        self.bench()
        (self.site / "sgl_pcie" / "libpar.so").write_text("rebuilt")
        self.assertRegex(status(), r"profile  stale \(2 GPUs: to 16 MiB\)\n  libpar.so was")


class Unwritten(Bench):
    """The last good profile stays as it is."""

    def setUp(self):
        super().setUp()
        self.prove()
        self.bench()
        self.kept = {name: self.file(name).read_bytes() for name in ("profile.json", "bench.json")}

    def tearDown(self):
        self.assertEqual({name: self.file(name).read_bytes() for name in self.kept}, self.kept)
        self.assertEqual(len(list(self.state.glob("*/*"))), 3)

    def test_wrong_data_is_exit_7_and_shown(self):
        told = self.bench(expect=7, FAKE_BENCH="wrong:push-one-shot")
        self.assertIn("wrong", told["message"])
        self.assertIsNone(told["profile"])
        for row in told["bench"]["groups"][0]["rows"]:
            wrong = [o for o in row["ours"] if o["wrong"]]
            self.assertEqual([o["algorithm"] for o in wrong], ["push-one-shot"] if row["bytes"] > 16384 else [])
            self.assertNotIn(row["chosen"], [o["algorithm"] for o in wrong])
        self.assertIn("  17  push-one-shot", self.cli("bench", "--site", self.site, expect=7, FAKE_BENCH="wrong:push-one-shot"))

    def test_a_hang_is_exit_8(self):
        start = time.monotonic()
        told = self.bench("--quick", "--timeout", "13", expect=8, FAKE_BENCH="hang")
        self.assertLess(time.monotonic() - start, 30)
        self.assertIn("killed", told["message"])
        self.assertRegex(told["next"], "^again with more time: --timeout [0-9]+, or none$")
        self.assertEqual(len(told["bench"]["groups"][0]["rows"]), 6)  # what came before it

    def test_one_that_dies(self):
        told = self.bench(expect=1, FAKE_BENCH="die")
        self.assertIn("ended by signal 9", told["message"])
        target = "--site %s" % self.site
        self.assertEqual(told["next"], "sgl-pcie verify %s, and report it: sgl-pcie report %s" % (target, target))

    def test_one_that_cannot_be_understood(self):
        told = self.bench(expect=5, FAKE_BENCH="garbage")
        self.assertIn("what sgl-pcie-gpu perf said: 'line 3' is not valid JSON", told["message"])

    def test_one_that_stops_before_its_result(self):
        self.assertIn("ended well, but before its result did", self.bench(expect=5, FAKE_BENCH="stop")["message"])

    def test_without_nccl_there_is_nothing_to_compare_with(self):
        self.assertIn("nothing to compare with", self.bench(expect=5, FAKE_BENCH="no-nccl")["message"])

    def test_others_at_work(self):
        told = self.bench(expect=9, FAKE_PROCESS="4711")
        self.assertIn("4711", told["message"])
        self.assertEqual([check["id"] for check in told["checks"]], ["grant.processes"])

    def test_a_look_writes_nothing(self):
        for words in (("--quick",), ("--sizes", "4K,1M"), ("--unproved",)):
            told = self.bench(*words)
            self.assertIsNone(told["profile"])
            self.assertIn("no profile was written", told["message"])

    def test_something_that_changes_meanwhile(self):
        library = self.site / "sgl_pcie" / "libpar.so"
        told = self.bench(expect=5, FAKE_BENCH="touch:%s" % library)
        self.assertIn("something changed while it was measured: libpar.so was", told["message"])

    def test_interrupted(self):
        process = subprocess.Popen(
            [real.CLI, "bench", "--site", self.site],
            env={**self.environment, "FAKE_BENCH": "hang"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(10), -signal.SIGINT)
        time.sleep(0.2)
        left = subprocess.run(["pgrep", "-f", str(self.site / "sgl_pcie")], capture_output=True, text=True, check=False)
        self.assertEqual(left.stdout, "")


class Refused(Bench):
    def test_without_a_verdict(self):
        told = self.bench(expect=1)
        self.assertEqual(told["message"], "nothing measured: no verdict for this machine")
        self.assertIn("sgl-pcie verify", told["next"])
        self.assertIsNone(self.bench("--unproved", "--quick")["profile"])
        self.assertIsNone(self.file("profile.json"))

    def test_with_a_stale_one(self):
        self.prove()
        (self.site / "sgl_pcie" / "libpar.so").write_text("rebuilt")
        self.assertIn("the verdict does not hold: libpar.so was", self.bench(expect=1)["message"])

    def test_only_what_was_proved_is_measured(self):
        self.prove(["host"])
        names = {o["algorithm"] for row in self.bench()["bench"]["groups"][0]["rows"] for o in row["ours"]}
        self.assertEqual({name.split("-")[0] for name in names}, {"host"})

    def test_arguments(self):
        for words, reason in (
            (["--sizes", "2K,,4K"], "no list of sizes"),
            (["--sizes", "3"], "no list of sizes"),
            (["--sizes", "2G"], "no list of sizes"),
            (["--step", "122"], "no step"),
            (["--step", "0x4096"], "no step"),
            (["--step", "1x4096,"], "no step"),
            (["--step", "1x43009"], "multiples of 4"),
            (["--step", ",".join(["1x4K"] * 17)], "up to 16 of them"),
            (["--model", "hidden=5121,layers=64"], "hidden=5121 is odd"),
            (["--model", "hidden=5120,layers=64,layers=32"], "each once"),
            (["--model", "hidden=5120,layers=64,"], "no model"),
            (["--model", "hidden=5120,layers=64,batch=128,draft=1024"], "131072 tokens of 10240 bytes are more than 1 GiB"),
            (["--model", "hidden=5120"], "no model"),
            (["--model", "hidden=5120,layers=64,batch=8-4"], "no model"),
            (["--model", "hidden=5120,layers=64,heads=8"], "no model"),
            (["--step", "1x4K", "--model", "hidden=1,layers=1"], "exclude each other"),
            (["--timeout", "x"], "no number for --timeout"),
            (["--from", "x", "--quick"], "--quick is about measuring"),
            (["--plot", "x.pdf"], "x.pdf"),
            (["--gpus", "7"], "there is no GPU '7'"),
        ):
            with self.subTest(words):
                self.assertIn(reason, self.cli("bench", *words, expect=2))

    def test_one_gpu_and_none(self):
        self.cli("bench", "--site", self.site, expect=5, FAKE_GPUS=GPUS[0])
        self.assertIn("--from FILE", self.cli("bench", "--site", self.site, expect=5, FAKE_GPUS=""))

    @unittest.skipUnless(shutil.which("gnuplot"), "no gnuplot")
    def test_a_plot_that_cannot_be_written_is_told_before_anything_is_measured(self):
        self.prove()
        (self.scratch / "folder.svg").mkdir()
        for place in ("/nope/x.svg", str(self.scratch / "folder.svg")):
            told = self.bench("--plot", place, expect=5)
            self.assertIn("cannot write '%s'" % place, told["message"])
            self.assertIsNone(told["bench"])

    @unittest.skipUnless(shutil.which("gnuplot"), "no gnuplot")
    def test_a_plot_that_fails_costs_no_profile(self):
        self.prove()
        place = self.scratch / "x.svg"
        told = self.bench("--plot", place, expect=5, FAKE_BENCH="folder:%s" % place)
        self.assertIn("cannot write", told["message"])
        self.assertTrue(self.profile()["tables"])


class Four(Bench):
    gpus = FOUR
    worlds = (2, 3, 4)

    def setUp(self):
        super().setUp()
        self.prove()

    def test_worlds_of_two_and_four(self):
        told = self.bench()
        self.assertEqual([group["world"] for group in told["bench"]["groups"]], [2, 4])
        self.assertIn("2 GPUs: to 16 MiB; 4 GPUs: to 16 MiB", told["message"])

    def test_other_gpus_are_added_to_the_profile(self):
        self.bench("--gpus", "0,1,2")
        self.bench("--gpus", "2,3")
        worlds = [(table["world"], table["gpus"][0]) for table in self.profile()["tables"]]
        self.assertEqual(worlds[0], (2, FOUR[2]))
        self.assertEqual(set(worlds), {(2, FOUR[2]), (2, FOUR[0]), (3, FOUR[0])})
        (self.site / "sgl_pcie" / "libpar.so").write_text("rebuilt")
        self.prove()
        self.bench("--gpus", "0,1")
        self.assertEqual({(table["world"], table["gpus"][0]) for table in self.profile()["tables"]}, {(2, FOUR[0])})

    def test_another_order_is_the_same_gpus(self):
        self.bench("--gpus", "1,0")
        self.bench("--gpus", "0,1", FAKE_BENCH="stock")
        self.assertEqual({tuple(table["gpus"]) for table in self.profile()["tables"]}, {tuple(FOUR[:2])})
        self.assertIn("faster", self.cli("enable", "--site", self.site, expect=1))

    def test_a_pair_on_which_only_the_host_passed(self):
        bound = {**self.bound(self.site), "driver": "580.95.05"}
        content = verdict(bound)
        content["results"] = [
            {"backend": "host", "world": 4, "gpus": FOUR, "result": "PASS"},
            {"backend": "host", "world": 2, "gpus": FOUR[:2], "result": "PASS"},
            {"backend": "push", "world": 2, "gpus": FOUR[2:], "result": "PASS"},
        ]
        content["pairs"] = [
            {"backend": "host", "gpus": FOUR, "failed": []},
            {"backend": "push", "gpus": FOUR, "failed": [[FOUR[0], FOUR[1]], [FOUR[1], FOUR[2]]]},
        ]
        self.write(self.site, "verdict.json", content)
        groups = [
            (
                [gpu["number"] for gpu in group["gpus"]],
                {o["algorithm"].split("-")[0] for row in group["rows"] for o in row["ours"]},
            )
            for group in self.bench()["bench"]["groups"]
        ]
        self.assertEqual(groups, [([2, 3], {"push", "host"}), ([0, 1], {"host"}), ([0, 1, 2, 3], {"host"})])


STOCK = """
import argparse, json, os, sys
words = argparse.ArgumentParser()
for name in ("world", "types", "sizes"):
    words.add_argument("--" + name)
words.add_argument("--stream", action="store_true")
given = words.parse_args()
assert given.world == "2" and given.types == "bf16" and len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")) == 2
if os.environ.get("FAKE_V1"):
    sys.exit(os.environ["FAKE_V1"])
print(json.dumps({"kind": "start", "gpus": []}))
for size in map(int, given.sizes.split(",")):
    time = {"us": 3.0 + size / 2**16, "p10": 3.0, "p90": 3.0, "n": 20}
    print(json.dumps({"kind": "row", "world": 2, "dtype": "bf16", "bytes": size, "by": "v1", "name": "v1", "transport": None,
                      "graph": time, "step": time if size <= 2**23 else None, "eager": None, "in_place": None, "wrong": 0}))
print(json.dumps({"kind": "end", "exit_code": 0, "unmeasured": int(os.environ.get("FAKE_LEFT", 0))}))
"""


class Own(Bench):
    """SGLang's own kernel, by the install's interpreter."""

    def setUp(self):
        super().setUp()
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.scratch / "env"], check=True)
        (packages,) = (self.scratch / "env/lib").glob("python3*/site-packages")
        shutil.copytree(self.site, packages, dirs_exist_ok=True)
        (packages / "sgl_pcie/stock.py").write_text(STOCK)
        self.site = packages
        self.prove()

    def told(self, **environment):
        return json.loads(self.cli("bench", "--python", self.scratch / "env/bin/python", "--json", **environment))

    def rows(self, **environment):
        (group,) = self.told(**environment)["bench"]["groups"]
        return {row["bytes"]: row for row in group["rows"]}, {rival["name"]: rival for rival in group["rivals"]}

    def test_it_is_stock_at_the_sizes_that_it_takes(self):
        rows, rivals = self.rows()
        self.assertEqual({size: row["stock"] for size, row in rows.items()}, {s: "v1" if s <= 2**23 else "nccl" for s in rows})
        self.assertEqual(rows[2048]["chosen"], "push-one-shot")
        self.assertEqual(rows[1 << 20]["chosen"], "stock")  # where ours beats NCCL, and not this
        self.assertIsNone(rivals["v1"]["error"])

    def test_points_without_a_figure_are_told(self):
        actual = {check["id"]: check["actual"] for check in self.told(FAKE_LEFT="3")["checks"]}
        self.assertEqual(actual["bench.v1.0-1"], "3 points were left out for lack of time")

    def test_where_it_cannot_run_nccl_is_stock_and_that_is_said(self):
        rows, rivals = self.rows(FAKE_V1="there is no kernel package")
        self.assertEqual({row["stock"] for row in rows.values()}, {"nccl"})
        self.assertIn("there is no kernel package", rivals["v1"]["error"])
        self.assertRegex(self.rows(FAKE_V1="\u00e9" * 200, LC_ALL="C.UTF-8")[1]["v1"]["error"], "^\u00e9{127}$")


class OwnProgram(unittest.TestCase):
    """sgl_pcie.stock itself, as far as it goes without GPUs."""

    def test_arguments_that_cannot_be_are_refused_in_a_sentence(self):
        command = [sys.executable, "-m", "sgl_pcie.stock"]
        for words in (
            ["--sizes", "inf"], ["--sizes", "nan"], ["--sizes", "2K,,4K"], ["--sizes", "3"], ["--types", "int8"],
            ["--world", "9"], ["--calls", "0"], ["--budget", "nan"], ["--budget", "-1"], ["--limit", "0"],
        ):  # fmt: skip
            with self.subTest(words):
                done = subprocess.run(
                    [*command, *words], cwd=HERE.parents[1] / "python", capture_output=True, text=True, check=False, timeout=60
                )
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertRegex(done.stderr.splitlines()[-1], "^python -m sgl_pcie.stock: error: ")


@unittest.skipUnless(os.environ.get("GPU_FAKE"), "there are no headers of CUDA to build it with")
class RealProgram(Bench):
    """The program itself, over a CUDA that takes no time: what it says is understood, to its end."""

    def test_it_is_understood(self):
        program = self.site / "sgl_pcie" / "sgl-pcie-gpu"
        program.write_text('#!/bin/sh\nFAKE_GPUS=2 exec "%s" "$@" --no-nccl\n' % os.environ["GPU_FAKE"])
        self.prove(["host"])
        told = self.bench("--sizes", "4K", "--timeout", "40", expect=5)
        self.assertIn("nothing to compare with", told["message"])
        (group,) = told["bench"]["groups"]
        self.assertEqual([row["bytes"] for row in group["rows"]], [4096])
        names = {o["algorithm"] for row in group["rows"] for o in row["ours"]}
        self.assertLessEqual({"host-one-shot", "host-two-shot", "host-two-shot-chunked"}, names)


class Terminal(Bench):
    def test_progress_and_time_left(self):
        self.prove()
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [real.CLI, "bench", "--site", self.site, "--color", "never"],
            env={**self.environment, "TERM": "xterm"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)
        seen = b""
        while True:
            try:
                block = os.read(master, 65536)
            except OSError:
                break
            if not block:
                break
            seen += block
        os.close(master)
        self.assertEqual(process.wait(10), 0)
        self.assertRegex(seen.decode(), r"\r\x1b\[K14 s left: world 2, bf16, 2048 bytes")
        self.assertIn("algorithm", seen.decode())


if __name__ == "__main__":
    unittest.main()
