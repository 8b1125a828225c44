"""report on a machine that is being set up: what it picks up from the install and from the state folder, step by step."""

import json
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bench"))

from bench import Bench, schema  # noqa: E402  (of tests/bench)


class Report(Bench):
    def report(self):
        """The bundle and the headline of the page, both of now."""
        told = json.loads(self.cli("report", "--site", self.site, "--json"))
        path = self.scratch / "report.html"
        self.cli("report", "--site", self.site, "--out", path)
        text = path.read_text()
        self.assertNotIn(str(self.scratch), text)
        for uuid in self.gpus:
            self.assertNotIn(uuid, text)
        return told["bundle"], re.search(r"<h1>(.*?)</h1>", text).group(1), text

    def test_each_stage_is_in_the_bundle_and_on_the_page(self):
        bundle, headline, _ = self.report()
        self.assertEqual((bundle["verdict"], bundle["profile"], bundle["bench"]), (None, None, None))
        self.assertIn("not proved", headline)

        self.prove()
        bundle, headline, text = self.report()
        self.assertEqual([result["result"] for result in bundle["verdict"]["results"]], ["PASS", "PASS"])
        self.assertIn("not measured", headline)
        self.assertIn("<code>sgl-pcie bench</code>", text)

        measured = self.bench("--step", "122x43008")["bench"]
        bundle, headline, text = self.report()
        self.assertTrue(bundle["profile"]["fresh"] and bundle["profile"]["wins"])
        self.assertEqual(bundle["profile"]["content"]["tables"][0]["entries"], self.profile()["tables"][0]["entries"])
        self.assertEqual(bundle["bench"]["groups"][0]["rows"], measured["groups"][0]["rows"])
        self.assertIn("not enabled", headline)
        for step in measured["steps"]:
            self.assertIn(step["sentence"], text)

        self.cli("enable", "--site", self.site)
        self.assertIn("Enabled", self.report()[1])

    def test_what_changed_is_said(self):
        self.prove()
        self.bench()
        (self.site / "sgl_pcie" / "libpar.so").write_text("another")
        bundle, headline, text = self.report()
        self.assertFalse(bundle["profile"]["fresh"])
        self.assertIn("not proved", headline)
        self.assertIn("stale: libpar.so was ", text)

    def test_a_bundle_says_elsewhere_what_it_said_here(self):
        self.prove()
        self.bench()
        here = self.scratch / "report.json"
        self.cli("report", "--site", self.site, "--out", here)
        self.cli("report", "--from", here, "--out", self.scratch / "there.html", FAKE_GPUS="", LD_LIBRARY_PATH="")
        self.cli("report", "--site", self.site, "--out", self.scratch / "here.html")
        strip = [re.sub(r"<li><time.*?</time></li>", "", (self.scratch / name).read_text()) for name in ("here.html", "there.html")]
        self.assertEqual(*strip)
        schema.validator("verify-parts.json").evolve(schema={"$ref": "verify-parts.json#/$defs/bundle"}).validate(json.loads(here.read_text()))


if __name__ == "__main__":
    unittest.main()
