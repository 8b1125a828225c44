"""`sgl-pcie` on real wheels: every text that the patch set knows, applied and taken back.

One release of every distinct tuple of texts is unpacked as real.site() says (a part of the wheel); the newest one
whole, too.
"""

import ast
import shutil
import tempfile
import unittest
from pathlib import Path

import real

CAR, UTILS = real.TOOL.CAR, real.TOOL.UTILS


class Site(unittest.TestCase):
    def site(self, version, **more):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return real.site(version, Path(folder.name) / "site-packages", **more)

    def assertUnchanged(self, site, since):
        self.assertEqual(real.differences(since, real.snapshot(site)), set())

    def states(self, site):
        """{path: (state, blob id, released blob id)} by `status`."""
        files = real.ask("status", "--site", site)[1]["install"]["files"]
        return {file["path"]: (file["state"], file["oid"], file["expected_oid"]) for file in files}

    def refused(self, site, code, *parts):
        """apply refuses with this code, names the parts, and writes nothing. Returns its JSON object."""
        before = real.snapshot(site)
        rc, out, err = real.run("apply", "--site", site)
        self.assertEqual(rc, code, out + err)
        for part in parts:
            self.assertIn(part, out + err)
        rc, answer = real.ask("apply", "--site", site)
        self.assertEqual((rc, answer["exit_code"], answer["result"]), (code, code, "refused"))
        self.assertUnchanged(site, before)
        return answer


class EveryText(Site):
    def test_apply_and_revert(self):
        texts = set()
        for version in real.one_of_each():
            with self.subTest(version):
                self.cycle(version, self.site(version))
                texts |= set(real.RELEASES[version]["files"].items())
        self.assertEqual(texts, set(real.TEXTS))

    def test_a_whole_wheel(self):
        self.cycle(real.NEWEST, self.site(real.NEWEST, whole=True))

    def cycle(self, version, site):
        files = real.RELEASES[version]["files"]
        before = real.snapshot(site)
        self.assertEqual(self.states(site), {path: ("pristine", pre, pre) for path, pre in files.items()})

        rc, answer = real.ask("apply", "--site", site)
        self.assertEqual((rc, answer["result"], answer["install"]["sglang"]), (0, "ok", version))
        for path, pre in files.items():
            data = (site / path).read_bytes()
            self.assertEqual(real.blob_id(data), real.TEXTS[path, pre]["post"])
            ast.parse(data, path)
        after = real.snapshot(site)
        changed = {path for path in before if before[path] != after[path]}
        self.assertEqual(changed, set(files), "nothing of SGLang's but these, RECORD least of all")
        self.assertEqual({path: after[path][0] for path in files}, {path: before[path][0] for path in files})
        self.assertEqual(
            {path.split("/")[0] for path in after.keys() - before.keys()},
            {"sgl_pcie", ".sgl-pcie"} | {entry.name for entry in site.glob("sgl_pcie_runtime-*.dist-info")},
        )
        posts = {path: ("applied", real.TEXTS[path, pre]["post"], pre) for path, pre in files.items()}
        self.assertEqual(self.states(site), posts)

        rc, out, _ = real.run("apply", "--site", site)
        self.assertEqual(rc, 0)
        self.assertIn("already applied", out)
        self.assertUnchanged(site, after)

        self.assertEqual(real.run("revert", "--site", site)[0], 0)
        self.assertUnchanged(site, before)
        self.assertEqual(real.run("revert", "--site", site)[0], 0)
        self.assertUnchanged(site, before)


class Identity(Site):
    def rename(self, site, version, new):
        """Change what the release calls itself, not its bytes."""
        info = site / ("sglang-%s.dist-info" % version)
        metadata = info / "METADATA"
        metadata.write_text(metadata.read_text().replace("\nVersion: %s\n" % version, "\nVersion: %s\n" % new, 1))
        info.rename(site / ("sglang-%s.dist-info" % new))

    def test_known_bytes_under_another_version(self):
        for version in ("0.4.6", "0.5.9", real.NEWEST):
            with self.subTest(version):
                site = self.site(version)
                self.rename(site, version, "0.0.0+internal")
                before = real.snapshot(site)
                self.assertEqual(real.run("apply", "--site", site)[0], 0)
                self.assertTrue(all(state == "applied" for state, _, _ in self.states(site).values()))
                self.assertEqual(real.run("revert", "--site", site)[0], 0)
                self.assertUnchanged(site, before)

    def test_no_metadata_at_all(self):
        site = self.site(real.NEWEST)
        shutil.rmtree(site / ("sglang-%s.dist-info" % real.NEWEST))
        self.assertEqual(real.run("apply", "--site", site)[0], 0)

    def test_one_changed_byte_is_drift(self):
        for version in ("0.4.1.post7", "0.5.9", "0.5.12", real.NEWEST):
            for path, pre in real.RELEASES[version]["files"].items():
                with self.subTest(version=version, path=path):
                    site = self.site(version)
                    data = bytearray((site / path).read_bytes())
                    data[-2] ^= 1
                    (site / path).write_bytes(data)
                    found = real.blob_id(bytes(data))
                    answer = self.refused(site, 4, path, "drifted", found[:12], pre[:12])
                    self.assertIn(
                        {"path": path, "set": "sglang", "state": "drifted", "oid": found, "expected_oid": pre},
                        answer["install"]["files"],
                    )

    def test_a_change_after_apply_is_drift(self):
        """Edited over our patch: neither upgraded nor reverted, so that nobody's work is lost."""
        site = self.site(real.NEWEST)
        self.assertEqual(real.run("apply", "--site", site)[0], 0)
        with (site / CAR).open("a") as file:
            file.write("# a local change\n")
        before = real.snapshot(site)
        self.refused(site, 4, CAR, "drifted")
        self.assertEqual(real.run("revert", "--site", site)[0], 4)
        self.assertUnchanged(site, before)

    def test_a_missing_file(self):
        site = self.site(real.NEWEST)
        (site / UTILS).unlink()
        self.refused(site, 4, UTILS, "missing")

    def test_files_of_two_releases(self):
        site = self.site(real.NEWEST)
        (site / UTILS).write_bytes(real.pristine("0.5.13", UTILS))
        self.refused(site, 4, UTILS)

    def test_unknown_release(self):
        site = self.site(real.NEWEST)
        for path in real.RELEASES[real.NEWEST]["files"]:
            (site / path).write_bytes(b"# of another time\n" + (site / path).read_bytes())
        self.rename(site, real.NEWEST, "9.9.9")
        answer = self.refused(site, 3, "9.9.9")
        self.assertEqual({file["state"] for file in answer["install"]["files"]}, {"unknown"})

    def test_releases_that_run_vllms_copy(self):
        for version in (real.REFUSED[0], real.REFUSED[-1]):
            with self.subTest(version):
                self.refused(self.site(version), 3, version, "vLLM")


if __name__ == "__main__":
    unittest.main()
