"""What sgl-pcie-gpu perf prints for programs, over the fake GPU: is it by the schema, within its budget, and kept when killed?

usage: test_perf.py PROGRAM LIBNCCL    (a libnccl.so.2 that sums in plain memory)
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
import schema  # noqa: E402

PROGRAM, NCCL = sys.argv.pop(1), sys.argv.pop(1)
HOST = ["--transport", "host", "--no-nccl", "--calls", "3", "--iterations", "5"]


def environment(**more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NCCL_")}
    return {**kept, "FAKE_GPUS": "2", **more}


def run(*words, **more):
    words = [PROGRAM, "perf", *words]
    return subprocess.run(words, env=environment(**more), capture_output=True, text=True, timeout=120)


def lines_of(text):
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        schema.validator("perf.schema.json").validate(line)
    return lines


class Stream(unittest.TestCase):
    def test_lines_are_by_the_schema_and_in_order(self):
        done = run("--stream", *HOST, "--sizes", "8K,64K", "--types", "bf16,fp32")
        lines = lines_of(done.stdout)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([line["kind"] for line in lines[:2]], ["start", "group"])
        self.assertEqual(lines[-1]["kind"], "end")
        rows = [line for line in lines if line["kind"] == "row"]
        self.assertEqual(len(rows), 4 * 6)
        self.assertEqual(lines[0]["points"], 4)
        self.assertEqual(lines[-1]["unmeasured"], 0)
        self.assertIn("local_us", lines[1]["links"])
        for row in rows:
            self.assertEqual((row["by"], row["transport"], row["wrong"]), ("ours", "host", 0))
            self.assertEqual(row["count"], row["bytes"] // (4 if row["dtype"] == "fp32" else 2))
            self.assertLessEqual(row["graph"]["p10"], row["graph"]["us"])
            self.assertLessEqual(row["graph"]["us"], row["graph"]["p90"])
            self.assertAlmostEqual(row["algbw"], row["bytes"] / row["graph"]["us"] / 1000, delta=0.001)
        for point in {(row["dtype"], row["bytes"]) for row in rows}:  # the fastest, at least, in full
            full = [row for row in rows if (row["dtype"], row["bytes"]) == point and row["step"] and row["eager"]]
            self.assertTrue(full, point)

    def test_progress_tells_where_it_is(self):
        done = run("--stream", *HOST, "--sizes", "8K,64K")
        seen = [re.fullmatch(r"\[(\d+)/(\d+) \d+s\] world 2, bf16, (8|64) KiB: host-[a-z-]+", line) for line in
                done.stderr.splitlines()]
        self.assertTrue(all(seen), done.stderr)
        self.assertEqual([(m[1], m[2]) for m in seen], [("1", "2")] * 6 + [("2", "2")] * 6)

    def test_a_budget_holds_and_says_what_it_left_out(self):
        start = time.monotonic()
        done = run("--stream", "--transport", "host", "--no-nccl", "--budget", "3")
        self.assertLess(time.monotonic() - start, 12)  # a point under way is finished, on a slow machine
        lines = lines_of(done.stdout)
        self.assertEqual(lines[0]["points"], 20)
        self.assertGreater(lines[-1]["unmeasured"], 0)
        self.assertEqual(done.returncode, 0 if any(line["kind"] == "row" for line in lines) else 9)

    def test_a_wrong_algorithm_is_named_untimed_and_exits_7(self):
        done = run("--stream", *HOST, "--sizes", "8K", SGL_PCIE_INJECT="wrong:host-two-shot")
        lines = lines_of(done.stdout)
        wrong = [line for line in lines if line["kind"] == "row" and line["wrong"]]
        self.assertEqual([row["name"] for row in wrong], ["host-two-shot"])
        self.assertIsNone(wrong[0]["graph"])
        self.assertEqual((done.returncode, lines[-1]["exit_code"]), (7, 7))
        self.assertIn("host-two-shot", lines[-1]["checks"][0]["actual"])

    def test_what_was_measured_survives_a_kill(self):
        program = subprocess.Popen([PROGRAM, "perf", "--stream", "--transport", "host", "--no-nccl"], env=environment(),
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        lines = []
        while sum('"kind":"row"' in line for line in lines) < 3:
            lines.append(program.stdout.readline())
        program.send_signal(signal.SIGINT)
        lines.extend(program.stdout.read().splitlines())
        self.assertEqual(program.wait(20), -signal.SIGINT)
        program.stdout.close()
        self.assertNotIn("end", [line["kind"] for line in lines_of("\n".join(line.strip() for line in lines))])

    def test_no_gpus_is_a_sentence_and_exit_5(self):
        done = run("--stream", FAKE_GPUS="1")
        self.assertEqual(done.returncode, 5)
        self.assertIn("needs two GPUs", done.stderr)
        self.assertEqual([line["kind"] for line in lines_of(done.stdout)], ["end"])


class Rivals(unittest.TestCase):
    WORDS = ["--stream", "--transport", "host", "--calls", "3", "--iterations", "3", "--sizes", "8K"]

    def groups(self, **more):
        done = run(*self.WORDS, SGLANG_NCCL_SO_PATH=NCCL, **more)
        lines = lines_of(done.stdout)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rivals = [line for line in lines if line["kind"] == "row" and line["by"] == "nccl"]
        self.assertTrue(all(row["graph"] and row["step"] and row["wrong"] is None for row in rivals))
        groups = {line["group"]: line["nccl"] for line in lines if line["kind"] == "group"}
        self.assertEqual([groups[row["group"]]["name"] for row in rivals], [row["name"] for row in rivals])
        return {row["name"]: groups[row["group"]] for row in rivals}

    def test_nccl_with_and_without_p2p_and_as_sglang_sets_it(self):
        found = self.groups()
        self.assertEqual(sorted(found), ["nccl", "nccl-no-p2p"])
        for name, nccl in found.items():
            self.assertIn("NCCL_CUMEM_ENABLE=0", nccl["environment"])
            self.assertEqual("NCCL_P2P_DISABLE=1" in nccl["environment"], name == "nccl-no-p2p")
            self.assertEqual(nccl["path"], NCCL)

    def test_settings_of_the_user_stay(self):
        found = self.groups(NCCL_CUMEM_ENABLE="1", NCCL_ALGO="Ring")
        self.assertIn("NCCL_CUMEM_ENABLE=1", found["nccl"]["environment"])
        self.assertIn("NCCL_ALGO=Ring", found["nccl"]["environment"])

    def test_once_where_it_goes_without_p2p_anyway(self):
        self.assertEqual(list(self.groups(NCCL_P2P_DISABLE="1")), ["nccl"])
        self.assertEqual(list(self.groups(FAKE_NO_P2P="1")), ["nccl"])

    def test_an_nccl_that_cannot_be_had_is_said_and_no_failure(self):
        done = run(*self.WORDS, SGLANG_NCCL_SO_PATH=PROGRAM, LD_LIBRARY_PATH="/nowhere", FAKE_NO_P2P="1")
        lines = lines_of(done.stdout)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual({line["by"] for line in lines if line["kind"] == "row"}, {"ours"})
        self.assertEqual([check["status"] for check in lines[-1]["checks"]], ["PASS", "SKIP"])
        self.assertIn("NCCL", lines[-1]["checks"][1]["actual"])

    def test_one_that_was_named_must_be_there(self):
        self.assertEqual(run(*self.WORDS, "--nccl", "/nowhere/libnccl.so.2").returncode, 5)


class One(unittest.TestCase):
    def test_one_object_has_everything(self):
        done = run("--json", *HOST, "--sizes", "8K")
        data = json.loads(done.stdout)
        self.assertEqual((done.returncode, data["exit_code"], len(data["rows"]), len(data["groups"])), (0, 0, 6, 1))
        for line in data["rows"] + data["groups"]:
            schema.validator("perf.schema.json").validate(line)
        self.assertEqual(len(data["gpus"]), 2)

    def test_in_place_is_measured_where_time_is_no_matter(self):
        rows = json.loads(run("--json", *HOST, "--sizes", "8K", "--each").stdout)["rows"]
        self.assertTrue(all(row["in_place"] and row["step"] and row["eager"] for row in rows))


if __name__ == "__main__":
    unittest.main()
