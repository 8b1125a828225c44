"""Plots through gnuplot: what is on them, and what must not happen on the way."""

import json
import os
import re
import unittest
import xml.etree.ElementTree as ET
from pathlib import Path

from common import CLI, PLOT_TOOL, ROOT, Case, measured, needs, run

SVG = "{http://www.w3.org/2000/svg}"


class Plot(Case):
    def plot(self, bench, name="plot.svg", expect=0, env=None):
        path = self.folder / name
        done = run(PLOT_TOOL, "file", path, feed=json.dumps(bench), env=env)
        self.assertEqual(done.returncode, expect, done.stderr)
        return path if expect == 0 else done.stderr

    def texts(self, path):
        root = ET.parse(path).getroot()
        self.assertEqual(root.tag, SVG + "svg")
        return ["".join(text.itertext()).strip() for text in root.iter(SVG + "text")]

    def program(self, text):
        """A gnuplot of our own, in front of the real one."""
        folder = self.folder / "bin"
        folder.mkdir()
        (folder / "gnuplot").write_text("#!/bin/sh\n" + text)
        (folder / "gnuplot").chmod(0o755)
        return {"PATH": f"{folder}:{os.environ['PATH']}"}


class Drawn(Plot):
    def test_the_title_says_what_when_where_and_against_what(self):
        words = self.texts(self.plot(measured()))
        self.assertIn("All-reduce of 2 GPUs, bf16", words)
        (facts,) = [word for word in words if "NVIDIA H200" in word]
        for part in ("2 x NVIDIA H200", "NCCL 2.28.9", "2026-11-30 04:30 UTC"):
            self.assertIn(part, facts)

    def test_every_line_has_a_name_and_every_measurement_a_point(self):
        bench = measured()
        path = self.plot(bench)
        words = self.texts(path)
        names = ["sgl-pcie", "sgl-pcie through the host", "NCCL 2.28.9", "NCCL without P2P", "model, by the links' rates"]
        for name in names:
            self.assertIn(name, words)
        (group,) = [group for group in bench["groups"] if group["type"] == "bf16"]
        # gnuplot draws a point of a line as <use>; one of each line is in the legend.
        uses = len(re.findall(r"<use xlink:href='#gpPt6'", path.read_text()))
        self.assertGreaterEqual(uses, 2 * len(group["rows"]))

    def test_a_handful_of_sizes_of_another_type_makes_no_picture(self):
        words = self.texts(self.plot(measured()))
        self.assertFalse([word for word in words if "fp32" in word])
        alone = measured()
        alone["groups"] = [group for group in alone["groups"] if group["type"] == "fp32"]
        self.assertTrue([word for word in self.texts(self.plot(alone)) if "fp32" in word])

    def test_a_png_is_one_and_is_not_blank(self):
        from PIL import Image

        picture = Image.open(self.plot(measured(), "plot.png")).convert("RGB")
        self.assertGreater(picture.width, 1000)
        colours = picture.getcolors(1 << 20)
        self.assertGreater(len(colours), 50)
        blue = sum(count for count, (r, g, b) in colours if b > 150 and r < 80 and g < 130)
        self.assertGreater(blue, 500)

    def test_a_terminal_gets_no_line_that_is_too_long(self):
        for columns, least, most in ((80, 60, 80), (120, 100, 120), (10, 40, 48), (100000, 120, 160)):
            done = run(PLOT_TOOL, "text", columns, feed=json.dumps(measured()))
            self.assertEqual(done.returncode, 0, done.stderr)
            lines = done.stdout.splitlines()
            self.assertTrue(least <= max(map(len, lines)) <= most, (columns, max(map(len, lines))))
            self.assertTrue(all(line == line.rstrip() for line in lines))
            self.assertIn("sgl-pcie", done.stdout)
            sizes = lines[-1].split()
            self.assertEqual(sizes[1::2], [unit for unit in sizes[1::2] if unit in ("KiB", "MiB")])
            self.assertGreater(len(sizes), 4)
            self.assertNotIn("\f", done.stdout)


class Command(Plot):
    def bench(self, *words, env=None):
        (self.folder / "bench.json").write_text(json.dumps(measured()))
        return run(CLI, "bench", "--from", self.folder / "bench.json", *words, env=env)

    def test_bench_draws_what_was_measured_before(self):
        for name in ("a.svg", "a.png"):
            done = self.bench("--plot", self.folder / name)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertGreater((self.folder / name).stat().st_size, 10000)
        done = self.bench("--plot", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        drawn = [line for line in done.stdout.splitlines() if line.endswith("|")]
        self.assertGreater(len(drawn), 10)
        self.assertLessEqual(max(map(len, drawn)), 80)  # no terminal

    def test_a_terminal_shows_all_that_stock_may_be(self):
        done = run(CLI, "bench", "--from", ROOT / "docs" / "example" / "bench.json", "--plot", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("NCCL 2.28.3", "SGLang's own (V1)", "sgl-pcie"):
            self.assertIn(name, done.stdout)

    def test_a_terminal_is_filled(self):
        done = run("script", "-qec", f"stty cols 140; {CLI} bench --from {self.folder}/bench.json --plot -", "/dev/null",
                   env={"TERM": "xterm"}) if self.bench().returncode == 0 else None  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout)
        drawn = [line.rstrip("\r") for line in done.stdout.split("\n") if line.rstrip("\r").endswith("|")]
        self.assertTrue(120 < max(map(len, drawn)) <= 140, max(map(len, drawn)))

    def test_a_wrong_ending_or_no_gnuplot_is_said_first(self):
        self.assertEqual(self.bench("--plot", "x.pdf").returncode, 2)
        for where in ("-", self.folder / "x.svg"):
            done = self.bench("--plot", where, env={"PATH": str(self.folder)})
            self.assertEqual(done.returncode, 5)
            self.assertIn("apt install gnuplot-nox", done.stderr)
            self.assertEqual(done.stdout, "")


class Refused(Plot):
    def test_an_ending_that_is_no_picture_is_named(self):
        for name in ("plot.pdf", "plot", "svg", "plot.svg.gz", "a.svg/plot"):
            message = self.plot(measured(), name, expect=2)
            self.assertIn(f"a plot is a .svg or a .png, not '{self.folder / name}'", message)
            self.assertEqual(run(PLOT_TOOL, "check", name).returncode, 2)

    def test_without_gnuplot_the_next_command_is_said_before_anything_is_measured(self):
        empty = {"PATH": str(self.folder)}
        for done in (run(PLOT_TOOL, "check", "plot.svg", env=empty),
                     run(PLOT_TOOL, "text", 80, feed=json.dumps(measured()), env=empty)):  # fmt: skip
            self.assertEqual(done.returncode, 5)
            self.assertIn("needs gnuplot", done.stderr)
            self.assertIn("apt install gnuplot-nox", done.stderr)
        self.assertEqual(run(PLOT_TOOL, "check", "plot.png").returncode, 0)

    def test_a_gnuplot_that_fails_is_quoted_and_leaves_no_file(self):
        message = self.plot(measured(), expect=5, env=self.program("echo 'no such terminal' >&2; exit 3"))
        self.assertIn("no such terminal", message)
        self.assertFalse((self.folder / "plot.svg").exists())

    def test_a_gnuplot_that_draws_nothing_is_not_believed(self):
        self.assertIn("drew nothing", self.plot(measured(), expect=5, env=self.program("cat > /dev/null")))
        self.assertFalse((self.folder / "plot.svg").exists())

    def test_nothing_measured_is_no_picture(self):
        for groups in ([], [measured()["groups"][0] | {"rows": []}]):
            self.assertIn("nothing was measured", self.plot(measured() | {"groups": groups}, expect=1))

    def test_a_place_that_cannot_be_written_is_said_first(self):
        (self.folder / "folder.svg").mkdir()
        for name in ("no/plot.svg", "folder.svg"):
            done = run(PLOT_TOOL, "check", self.folder / name)
            self.assertEqual(done.returncode, 5)
            self.assertIn(f"cannot write '{self.folder / name}'", done.stderr)
        self.assertEqual(run(PLOT_TOOL, "check", self.folder / "new.svg").returncode, 0)
        self.assertFalse((self.folder / "new.svg").exists())

    def test_a_folder_that_is_not_there_is_named(self):
        self.assertIn("no/plot.svg", self.plot(measured(), "no/plot.svg", expect=5))


class Careful(Plot):
    def test_the_users_settings_change_nothing(self):
        (self.folder / ".gnuplot").write_text("set terminal dumb\nprint 'from the user'\n")
        plain = self.plot(measured()).read_bytes()
        home = self.plot(measured(), "home.svg", env={"HOME": str(self.folder)}).read_bytes()
        self.assertEqual(plain, home)

    def test_no_file_is_left_behind(self):
        folder = self.folder / "tmp"
        folder.mkdir()
        self.plot(measured(), env={"TMPDIR": str(folder)})
        self.assertEqual(list(folder.iterdir()), [])
        self.assertEqual({path.name for path in self.folder.iterdir()}, {"tmp", "plot.svg"})

    def test_a_name_cannot_leave_its_quotes(self):
        mark = self.folder / "mark"
        for text in (f"'\nsystem('touch {mark}')\n'", f"`touch {mark}`", f"\"\nset print '{mark}'\nprint 1\n", "EOD\n",
                     f"'.system('touch {mark}').'", "{/Symbol a}^2_3 <&>\\n\"", "\x01\x1b[31m é 漢"):  # fmt: skip
            bench = measured() | {"gpu": text[:200]}
            for rival in bench["groups"][0]["rivals"]:
                rival["via"] = text[:200]
                rival["version"] = text[:20]
            words = self.texts(self.plot(bench))
            self.assertFalse(mark.exists())
            self.assertTrue([word for word in words if word.startswith("2 x ")])
            run(PLOT_TOOL, "text", 100, feed=json.dumps(bench))
            self.assertFalse(mark.exists())

    def test_numbers_that_no_axis_can_show_are_left_out(self):
        for number in (1e308, 5e-324, 1e-300, 1e12):
            bench = measured()
            for group in bench["groups"]:
                for item in group["rows"][0]["ours"]:
                    item["step_us"] = number
            path = self.folder / "plot.svg"
            done = run(PLOT_TOOL, "file", path, feed=json.dumps(bench))
            self.assertIn(done.returncode, (0, 1), done.stderr)
            if done.returncode == 0:
                self.assertNotRegex(path.read_text().lower(), r"[^a-z](nan|inf)[^a-z]")


if __name__ == "__main__":
    needs("gnuplot")
    assert Path(PLOT_TOOL).exists()
    unittest.main()
