"""The page of report: well-formed, self-contained, true to its bundle, and safe with whatever a bundle holds."""

import copy
import json
import re
import sys
import unittest
import xml.etree.ElementTree as ET

import html5lib

from common import CLI, MACHINES, ROOT, SHA, UUIDS, Case, check, measured, recorded, run, status, whole

HTML, SVG = "{http://www.w3.org/1999/xhtml}", "{http://www.w3.org/2000/svg}"
ADDRESSES = {"src", "href", "srcset", "action", "data", "poster", "background", "formaction", "cite", "ping", "longdesc"}


def parse(text):
    """The document, by a parser that takes no error."""
    return html5lib.HTMLParser(strict=True).parse(text)


def name(element):
    return element.tag.split("}")[-1] if isinstance(element.tag, str) else ""


def words(element):
    return " ".join("".join(element.itertext()).split())


def ours(row):
    """The time that is shown as ours: of what serves the size, or of the fastest where that is stock."""
    wanted = row["fastest"] if row["chosen"] == "stock" else row["chosen"]
    return next(item["step_us"] for item in row["ours"] if item["algorithm"] == wanted)


class Page(Case):
    def check(self, text):
        """What holds for every page."""
        root = parse(text)
        every = [element for element in root.iter() if isinstance(element.tag, str)]
        ids = [element.get("id") for element in every if element.get("id")]
        self.assertEqual(len(ids), len(set(ids)), sorted(ids))
        for element in every:
            for attribute in element.attrib:
                self.assertNotIn(attribute.split("}")[-1], ADDRESSES, (name(element), attribute))
                self.assertFalse(attribute.lower().startswith("on"), attribute)
            for reference in (element.get("aria-labelledby") or "").split():
                self.assertIn(reference, ids)
        self.assertEqual({name(element) for element in every} & {"script", "link", "img", "iframe", "object", "base"}, set())
        self.assertNotRegex(text, r"url\(|@import|https?://(?!www\.w3\.org)")
        self.accessible(root)
        for svg in re.findall(r"<svg.*?</svg>", text, re.S):
            ET.fromstring(svg)
        self.assertNotRegex(text, r"(?i)[\" ,>](nan|-?inf)[\" ,<]")
        return root

    def accessible(self, root):
        self.assertEqual(root.get("lang"), "en")
        self.assertEqual(len(list(root.iter(HTML + "h1"))), 1)
        self.assertTrue(words(root.find(f"{HTML}head/{HTML}title")))
        for table in root.iter(HTML + "table"):
            self.assertTrue(words(table.find(HTML + "caption")))
            columns = table.findall(f"{HTML}thead/{HTML}tr/{HTML}th")
            self.assertTrue(columns)
            for row in table.findall(f"{HTML}tbody/{HTML}tr"):
                self.assertEqual(len(row), len(columns), words(row))
                self.assertEqual([cell.get("scope") for cell in row.findall(HTML + "th")], ["row"])
            self.assertEqual({cell.get("scope") for cell in columns}, {"col"})
        for svg in root.iter(SVG + "svg"):
            if svg.get("aria-hidden") != "true":
                self.assertEqual(svg.get("role"), "img")
                self.assertTrue(words(svg.find(SVG + "title")))
                self.assertTrue(words(svg.find(SVG + "desc")))


class Whole(Page):
    def test_every_recorded_machine_makes_a_page_that_is_right(self):
        for path in sorted(MACHINES.glob("*.json")):
            with self.subTest(path.stem):
                bundle = recorded(path.stem)
                text = self.make(bundle)
                root = self.check(text)
                drawn = [words(item) for item in root.iter(SVG + "text") if words(item).startswith("GPU ")]
                self.assertEqual(len(drawn), len(bundle["recording"]["gpus"]))
                for finding in bundle["findings"]:
                    self.assertIn(" ".join(finding["text"].split()), words(root))

    def test_every_measurement_is_in_the_table(self):
        bench = measured()
        root = self.check(self.make(whole()))
        tables = {words(table.find(HTML + "caption")): table for table in root.iter(HTML + "table")}
        for group in bench["groups"]:
            table = tables[f"Microseconds per call in a step, {group['type']}"]
            rows = table.findall(f"{HTML}tbody/{HTML}tr")
            self.assertEqual(len(rows), len(group["rows"]))
            for row, line in zip(group["rows"], rows):
                us = ours(row)
                self.assertEqual(words(line[1]), f"{us:.2f}" if us < 100 else f"{us:.1f}" if us < 1000 else f"{us:.0f}")
                self.assertIn(row["chosen"], words(line))
                stock = next(item["step_us"] for item in row["rivals"] if item["name"] == row["stock"])
                self.assertIn(f"{stock / us:.2f}", words(line))

    def test_the_picture_has_a_point_for_every_measurement(self):
        (group,) = [group for group in measured()["groups"] if group["type"] == "bf16"]
        root = self.check(self.make(whole()))
        (chart,) = [svg for svg in root.iter(SVG + "svg") if svg.get("class") == "chart"]
        titles = [words(title) for title in chart.iter(SVG + "title")]
        for row in group["rows"]:
            us = ours(row)
            self.assertTrue([title for title in titles if title.startswith("sgl-pcie,") and title.endswith(f"{us:.4g} µs")])
        for line in ("sgl-pcie", "NCCL 2.28.9", "NCCL without P2P", "model, by the links' rates"):
            self.assertIn(line, [words(item) for item in chart.iter(SVG + "text")])
        for circle in chart.iter(SVG + "circle"):
            self.assertTrue(0 <= float(circle.get("cx")) <= 640 and 0 <= float(circle.get("cy")) <= 568)

    def test_what_is_saved_is_what_bench_says(self):
        bundle = whole()
        text = words(self.check(self.make(bundle)))
        saved = re.search(r"([\d.]+) ms saved per step of 122 all-reduces of 42 KiB: ([\d.]+) ms with stock, ([\d.]+) ms by push; by host alone [\d.]+ ms", text)
        self.assertIsNotNone(saved, text[:600])
        (group,) = [group for group in bundle["bench"]["groups"] if group["type"] == "bf16"]
        (row,) = [row for row in group["rows"] if row["bytes"] == 43008]
        stock = next(item["step_us"] for item in row["rivals"] if item["name"] == row["stock"]) * 122 / 1000
        ours = next(item["step_us"] for item in row["ours"] if item["algorithm"] == row["chosen"]) * 122 / 1000
        for said, meant in zip(saved.groups(), (stock - ours, stock, ours)):
            self.assertAlmostEqual(float(said), meant, delta=0.006)

    def test_what_stays_with_stock_is_no_time_of_the_host(self):
        bundle = whole()
        for item in (i for g in bundle["bench"]["groups"] for r in g["rows"] for i in r["ours"] if "host" in i["algorithm"]):
            item["step_us"] = 1e4
        text = words(self.check(self.make(bundle)))
        self.assertRegex(text, r"ms saved per step of 122 all-reduces of 42 KiB: [\d.]+ ms with stock, [\d.]+ ms by push ")
        self.assertNotRegex(text, "; by (stock|host) alone")
        for item in (i for g in bundle["bench"]["groups"] for r in g["rows"] for i in r["ours"] if r["bytes"] > 16384):
            item["step_us"] = 1e4
        text = words(self.check(self.make(bundle)))
        self.assertRegex(text, r"0.00 ms saved per step of 122 all-reduces of 42 KiB: [\d.]+ ms with stock, which stays ")

    def test_what_failed_is_said_with_its_remedy(self):
        root = self.check(self.make(whole()))
        text = words(root)
        self.assertIn("loads give garbage", text)
        (table,) = [item for item in root.iter(HTML + "table") if words(item.find(HTML + "caption")) == "What did not pass"]
        (row,) = table.findall(f"{HTML}tbody/{HTML}tr")
        self.assertEqual([words(cell) for cell in row[:3]], ["load.0-1", "FAIL", "every word"])
        self.assertEqual(words(row[3]), "0x7fff7fffsgl-pcie verify --level 2")
        self.assertIn("48.2 GB/s", text)

    def test_each_way_says_what_was_proved_of_it_and_whether_it_is_used(self):
        root = self.check(self.make(whole()))
        text = words(root)
        self.assertIn("stores to a peer proved, in the profile", text)
        self.assertIn("loads from a peer failed", text)
        captions = [words(item) for item in root.iter(HTML + "caption")]
        self.assertIn("2 GPUs, push", captions)
        self.assertIn("2 GPUs, host", captions)
        text = words(self.check(self.make(recorded("m4-switch-8x3090-nop2p"))))
        self.assertIn("stores to a peer refused", text)
        self.assertIn("through host memory may work", text)

    def test_steps_and_troubles_are_those_of_bench(self):
        bundle = whole()
        step = {"step": "9x4096", "world": 2, "type": "bf16", "backends": "push", "parts": [], "measured": True, "served": True, "stock_ms": 3.5,
                "ours_ms": 1.25, "saved_ms": 2.25, "sentence": "122 x 43008 on 2 GPUs: a sentence"}  # fmt: skip
        bundle["bench"]["steps"] = [step | {"world": 4, "saved_ms": 7}, step]
        bundle["bench"]["troubles"] = ["GPU 1 writes at half of what its link can"]
        text = words(self.check(self.make(bundle)))
        self.assertIn("122 x 43008 on 2 GPUs: a sentence", text)
        self.assertIn("2.25 ms saved per step of 9x4096: 3.50 ms with stock, 1.25 ms by push", text)
        self.assertIn("GPU 1 writes at half of what its link can", text)


class States(Page):
    def banner(self, change, **parts):
        bundle = whole() | parts
        change(bundle)
        header = next(self.check(self.make(bundle)).iter(HTML + "header"))
        code = header.find(f"{HTML}p/{HTML}code")
        return words(header.find(HTML + "h1")), None if code is None else words(code), header.get("class")

    def test_the_headline_says_how_far_it_is_and_the_next_command(self):
        def files(state):
            return lambda bundle: [file.update(state=state) for file in bundle["status"]["install"]["files"]]

        def kernel(bundle):
            """A checkout has it, patched or not."""
            listed = bundle["status"]["install"]["files"]
            listed.append({**listed[0], "path": "sgl-kernel/x.cuh", "set": "sgl-kernel", "state": "unknown"})

        def install(**more):
            return lambda bundle: bundle["status"].update(more)

        absent = {"present": False, "fresh": False, "result": None, "reasons": ["no verdict for this machine"]}
        stale = {"present": True, "fresh": False, "result": "PASS", "reasons": ["driver was 1, is 2"]}
        failed = {"present": True, "fresh": True, "result": "FAIL", "reasons": ["nothing passed"]}
        cases = [
            (lambda bundle: None, {}, "Enabled, but NVLink joins all GPUs: auto leaves them to SGLang’s own", None, "done"),
            (lambda bundle: [pair.update(nvlink="NS") for pair in bundle["recording"]["pairs"]], {},
             "Enabled: SGLang uses the PCIe all-reduce", None, "done"),
            (kernel, {}, "Enabled, but NVLink joins all GPUs: auto leaves them to SGLang’s own", None, "done"),
            (files("pristine"), {}, "not patched", "sgl-pcie apply", "next"),
            (files("drifted"), {}, "cannot be used as it is", None, "bad"),
            (install(pending=True), {}, "cannot be used as it is", "sgl-pcie recover", "bad"),
            (install(extension={"present": False, "sha256": None}), {}, "Patched, not built", "sgl-pcie build", "next"),
            (install(verdict=absent), {}, "Built, not proved", "sgl-pcie verify", "next"),
            (install(verdict=stale), {}, "Built, not proved", "sgl-pcie verify", "next"),
            (install(verdict=failed), {}, "Not to be trusted", None, "bad"),
            (lambda bundle: None, {"profile": None, "bench": None}, "not measured", "sgl-pcie bench", "next"),
            (lambda bundle: bundle["profile"].update(wins=False), {}, "not faster than stock", None, "bad"),
            (lambda bundle: bundle["profile"].update(fresh=False, reason="driver"), {}, "not measured", "sgl-pcie bench", "next"),
            (install(flag={"value": None, "source": "unset"}), {}, "not enabled", "sgl-pcie enable", "next"),
            (install(flag={"value": "unsafe", "source": "environment"}), {}, "Enabled without a proof", None, "bad"),
            (lambda bundle: bundle.update(status=None, status_error="no sglang in <path>"), {}, "No SGLang was found",
             "sgl-pcie status", "later"),
        ]  # fmt: skip
        for number, (change, parts, headline, command, kind) in enumerate(cases):
            with self.subTest(number):
                said, next_command, shown = self.banner(change, **parts)
                self.assertIn(headline, said)
                self.assertEqual((next_command, shown), (command, kind))

    def test_a_later_stage_is_not_said_to_be_next(self):
        bundle = recorded("real-2xh200-guest") | {
            "status": status(
                extension={"present": False, "sha256": None},
                flag={"value": None, "source": "unset"},
                verdict={"present": False, "fresh": False, "result": None, "reasons": []},
            )
        }
        root = self.check(self.make(bundle))
        (stages,) = [item for item in root.iter(HTML + "ol") if item.get("class") == "stages"]
        self.assertEqual([item.get("class") for item in stages], ["done", "next", "later", "later", "later"])
        for command in ("sgl-pcie bench", "sgl-pcie verify"):
            self.assertIn(command, words(root))

    def test_who_set_the_flag_is_said_where_somebody_did(self):
        for value, source, said in (
            (None, "unset", "Flag unset Files"),
            (None, "environment", "Flag set to nothing set by environment Files"),
            ("1", "install", "Flag 1 set by install Files"),
        ):
            bundle = recorded("real-2xh200-guest") | {"status": status(flag={"value": value, "source": source})}
            text = re.sub("</d[dt]>|<caption", " \\g<0>", self.make(bundle))
            self.assertIn(said, words(parse(text)))

    def test_a_recording_is_a_machine_and_nothing_is_asked_of_it(self):
        text = words(self.check(self.make(recorded("m4-switch-8x3090-nop2p"))))
        self.assertIn("A machine, without an install", text)
        self.assertNotIn("sgl-pcie bench", text)
        self.assertIn("Switch for 4 GPUs", text)

    def test_no_gpu_is_said(self):
        bundle = recorded("real-2xh200-guest")
        bundle["recording"] |= {"gpus": [], "pci": [], "pairs": []}
        self.assertIn("No GPU was seen", words(self.check(self.make(bundle))))

    def test_measurements_of_another_version_do_not_cost_the_rest(self):
        bundle = whole()
        bundle["bench"]["schema"] = "sgl-pcie-bench/9"
        text = words(self.check(self.make(bundle)))
        self.assertIn("cannot be shown: schema 'sgl-pcie-bench/9'", text)
        self.assertIn("What may serve which GPUs", text)

    def test_a_wrong_algorithm_is_shown_as_wrong(self):
        bundle = whole()
        row = bundle["bench"]["groups"][0]["rows"][0]
        row["ours"][0] |= {"wrong": 17, "step_us": 0, "graph_us": 0}
        self.assertIn("17 wrong", words(self.check(self.make(bundle))))


def leaves(value, path=()):
    """Every text in a JSON value."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from leaves(item, (*path, number))
    elif isinstance(value, str):
        yield path


def put(value, path, text):
    for step in path[:-1]:
        value = value[step]
    value[path[-1]] = text


class Hostile(Page):
    TEXTS = [
        "\"><script>alert(1)</script>", "' onload='alert(1)", "</style><script>", "</svg></title></table>", "<!--", "&lt;&#60;",
        "\x01\x08\x7f\x9f\uffff\ufdd0", "javascript:alert(1)", "]]>", "<p>" * 50, "%s%n%1000000d", "é漢🙂\u202e",
    ]  # fmt: skip

    def test_no_text_of_a_bundle_becomes_markup(self):
        free = [path for path in leaves(whole()) if path[-1] not in ("schema",)]
        harmless = self.shape(free, "harmless")
        for text in self.TEXTS:
            with self.subTest(text):
                self.assertEqual(self.shape(free, text), harmless)

    def shape(self, paths, text):
        """The elements of the page with this text wherever a bundle has one that is not from a fixed set."""
        bundle = whole()
        for path in paths:
            if path[0] == "recording" and path[-1] not in ("name", "cpu", "version", "board", "product", "kernel", "uuid"):
                continue  # addresses and the like are checked before
            if path[0] == "bench" and path[-1] in ("algorithm", "fastest", "chosen", "stock", "type"):
                continue
            if path[0] == "bench" and path[-1] == "name" or path[-1] in ("level", "result", "state", "value", "id", "oid", "expected_oid", "sha256"):
                continue
            if path[-1] in ("uuid", "layout", "runtime", "source", "code", "status", "backend", "algorithm") or path[0] == "backends" or "gpus" in path:
                continue
            put(bundle, path, text)
        root = self.check(self.make(bundle))
        self.assertGreater(words(root).count("harmless") if text == "harmless" else 99, 30)
        return [name(element) for element in root.iter()]

    def test_each_text_alone_is_escaped_or_refused(self):
        bundle = whole()
        bundle["bench"]["groups"] = bundle["bench"]["groups"][:1]
        bundle["bench"]["groups"][0]["rows"] = bundle["bench"]["groups"][0]["rows"][:1]
        bundle["checks"], bundle["findings"] = bundle["checks"][:1], bundle["findings"][:1]
        seen = set()
        for path in leaves(bundle):
            kind = tuple(step for step in path if isinstance(step, str))
            if kind in seen:
                continue
            seen.add(kind)
            changed = copy.deepcopy(bundle)
            put(changed, path, "\"><script>alert(1)</script>")
            (self.folder / "report.json").write_text(json.dumps(changed))
            done = run(CLI, "report", "--from", self.folder / "report.json", "--out", self.folder / "report.html")
            with self.subTest(kind):
                self.assertIn(done.returncode, (0, 1), done.stderr[-1500:])
                if done.returncode == 0:
                    self.check((self.folder / "report.html").read_text())
                else:
                    self.assertIn("report.json", done.stderr)
        self.assertGreater(len(seen), 60)

    def test_numbers_of_any_size_make_a_page_or_a_refusal_that_names_them(self):
        for number in (1e308, 5e-324, -1, 2**62):
            for key in ("step_us", "graph_us", "model_us"):
                bundle = whole()
                for row in bundle["bench"]["groups"][0]["rows"][:3]:
                    row["ours"][0][key] = number
                with self.subTest((number, key)):
                    if number < 0:
                        self.assertIn(f"bench: field 'groups[0].rows[0].ours[0].{key}' is -1", self.make(bundle, expect=1))
                    else:
                        self.check(self.make(bundle))
            for part in ("max_bytes", "us", "stock_us"):
                bundle = whole()
                bundle["profile"]["content"]["tables"][0]["entries"][0][part] = number
                with self.subTest((number, part)):
                    if part == "max_bytes":
                        self.assertRegex(self.make(bundle, expect=1), r"profile: field 'tables\[0\].entries\[[01]\].max_bytes' ")
                    else:
                        self.check(self.make(bundle))

    def test_parts_that_are_not_there_do_not_break_it(self):
        for key in ("status", "findings", "checks", "backends", "verdict", "profile", "bench", "status_error"):
            with self.subTest(key):
                self.check(self.make(whole() | {key: None}))

    def test_a_bundle_without_a_machine_is_refused_by_name(self):
        for change in ({"recording": None}, {"recording": {"schema": "other/1"}}):
            self.assertIn("recording", self.make(whole() | change, expect=1))
        (self.folder / "report.json").write_text("{")
        done = run(CLI, "report", "--from", self.folder / "report.json", "--out", self.folder / "x.html")
        self.assertEqual(done.returncode, 1)
        self.assertFalse((self.folder / "x.html").exists())
        self.assertEqual(run(CLI, "report", "--from", self.folder / "nothing").returncode, 5)


class Names(Page):
    def test_no_name_of_a_host_a_user_or_a_path_is_on_the_page(self):
        bundle = whole()
        bundle["bench"]["groups"][0]["rivals"][0]["settings"] = "NCCL_TOPO_FILE=/home/alice/topo.xml"
        bundle["bench"]["groups"][0]["rivals"][0]["path"] = "/home/alice/env/libnccl.so.2"
        bundle["findings"][0]["text"] = "alice may not open /home/alice/env on node7"
        (self.folder / "report.json").write_text(json.dumps(bundle))
        done = run(CLI, "report", "--from", self.folder, "--out", self.folder / "report.html",
                   env={"HOME": "/home/alice", "USER": "alice", "HOSTNAME": "node7"})  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        text = (self.folder / "report.html").read_text()
        self.check(text)
        for word in ("alice", "node7", "/home", *UUIDS):
            self.assertNotIn(word, text)
        self.assertIn("&lt;name&gt; may not open &lt;path&gt; on &lt;name&gt;", text)

    def test_this_machine_makes_a_page_with_no_install_and_nothing_measured(self):
        done = run(CLI, "report", "--out", self.folder / "report.html",
                   env={"VIRTUAL_ENV": "", "CONDA_PREFIX": "", "PATH": str(self.folder)})  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        text = (self.folder / "report.html").read_text()
        self.check(text)
        self.assertIn("No SGLang was found here", text)
        self.assertNotIn(str(self.folder), text)

    def test_a_bundle_of_a_bundle_is_the_bundle(self):
        bundle = whole()
        (self.folder / "report.json").write_text(json.dumps(bundle))
        once = run(CLI, "report", "--from", self.folder).stdout
        (self.folder / "report.json").write_text(once)
        self.assertEqual(run(CLI, "report", "--from", self.folder).stdout, once)
        self.assertEqual(json.loads(once)["bench"]["groups"][0]["rows"], bundle["bench"]["groups"][0]["rows"])


class Example(Page):
    """docs/example is what its README says."""

    FOLDER = ROOT / "docs" / "example"

    def test_the_page_is_the_one_that_its_bundle_makes(self):
        done = run(CLI, "report", "--from", self.FOLDER / "report.json", "--out", self.folder / "report.html")
        self.assertEqual(done.returncode, 0, done.stderr)
        made, kept = ((folder / "report.html").read_text() for folder in (self.folder, self.FOLDER))
        self.assertTrue(made == kept, "sgl-pcie report --from docs/example/report.json --out docs/example/report.html")
        self.check(kept)
        self.assertIn("Enabled, but NVLink joins all GPUs", kept)

    def test_the_plot_has_every_measurement(self):
        bench = json.loads((self.FOLDER / "bench.json").read_text())
        plot = (self.FOLDER / "plot.svg").read_text()
        ET.fromstring(plot)
        for name in ("sgl-pcie", "NCCL 2.28.3", "NCCL without P2P", "SGLang's own (V1)"):
            self.assertIn(name.replace("'", "&apos;") if name not in plot else name, plot)
        self.assertGreaterEqual(plot.count("#gpPt6"), 2 * len(bench["groups"][0]["rows"]))

    def test_it_names_nobody_and_is_small(self):
        for path in self.FOLDER.iterdir():
            text = path.read_text()
            self.assertLess(len(text.encode()), 300_000)
            self.assertEqual(set(re.findall(r"GPU-[0-9a-f]{8}-", text)) - {"GPU-00000000-"}, set())
            self.assertNotRegex(text, r"/(root|home|tmp|work)/")


class Look(Page):
    def variables(self, text, dark):
        style = text[text.index("<style>") : text.index("</style>")]
        first, rest = style.split("@media (prefers-color-scheme: dark)", 1)
        found = dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", first))
        return found | (dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", rest[: rest.index("} }")])) if dark else {})

    @staticmethod
    def light(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        parts = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    def test_texts_can_be_read_on_their_grounds_light_and_dark(self):
        text = self.make(whole())
        pairs = [(ink, ground) for ink in ("ink", "soft") for ground in ("paper", "card", "plain-bg")]
        pairs += [(kind, f"{kind}-bg") for kind in ("good", "warn", "bad")] + [("ours", "paper"), ("good", "card")]
        pairs += [("warn", "card"), ("bad", "card"), ("bad", "paper"), ("host", "paper"), ("warn", "paper")]
        for dark in (False, True):
            colours = self.variables(text, dark)
            for ink, ground in pairs:
                high, low = sorted((self.light(colours[ink]), self.light(colours[ground])), reverse=True)
                self.assertGreaterEqual((high + 0.05) / (low + 0.05), 4.5, (dark, ink, ground))

    def test_it_is_small(self):
        self.assertLess(len(self.make(whole()).encode()), 150_000)


if __name__ == "__main__":
    assert len(SHA) == 64 and check and sys.version_info >= (3, 9)
    unittest.main()
