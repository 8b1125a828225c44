"""The C side and the Python side agree: on what a verdict is bound to, on where it is, and on whether it is stale."""

import hashlib
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import unittest

from common import GPUS, Case, machine, profile, schema, state, verdict

from sgl_pcie import profile as profiles  # noqa: E402
from sgl_pcie import verdict as verdicts  # noqa: E402


def config_space(acs):
    """4 KiB with one other extended capability, then ACS with these control bits."""
    space = bytearray(4096)
    struct.pack_into("<I", space, 0x100, (0x140 << 20 if acs is not None else 0) | 1 << 16 | 0x0001)
    if acs is not None:
        struct.pack_into("<IHH", space, 0x140, 1 << 16 | 0x000D, 0x5F, acs)
    return bytes(space)


class Recorded(Case):
    """A made-up /proc and /sys: two GPUs, one below a switch, one on a root port."""

    def setUp(self):
        super().setUp()
        self.site = self.scratch / "site"
        self.put("site/sgl_pcie/libpar.so", "library")
        self.put("site/.sgl-pcie/install.json", '{"sets": {"sglang": {"revision": 3, "files": []}}}')
        self.put("sys/module/nvidia/version", "580.95.05\n")
        self.put("sys/module/nvidia/srcversion", "0A1B2C\n")
        self.gpu("0000:43:00.0", 0, ["pci0000:40", "0000:40:01.1", "0000:41:00.0", "0000:42:00.0"], 0x1D)
        self.gpu("0000:c1:00.0", 1, ["pci0000:c0", "0000:c0:01.1"], None)

    def put(self, name, content):
        path = self.scratch / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def gpu(self, bus, number, above, acs):
        self.put("proc/driver/nvidia/gpus/%s/information" % bus, "Model: \t A\nGPU UUID: \t %s\n" % GPUS[number])
        chain = [*above, bus]
        folder = "sys/devices/" + "/".join(chain)
        self.put(folder + "/current_link_width", "16\n")
        self.put(folder + "/max_link_speed", "32.0 GT/s PCIe\n")
        self.put("sys/groups/%d/type" % number, "identity\n")
        os.symlink(self.scratch / ("sys/groups/%d" % number), self.scratch / folder / "iommu_group")
        devices = self.scratch / "sys/bus/pci/devices"
        devices.mkdir(parents=True, exist_ok=True)
        for depth in range(1, len(chain)):
            below = "sys/devices/" + "/".join(chain[: depth + 1])
            os.symlink(self.scratch / below, devices / chain[depth])
            if chain[depth] != bus:
                self.put(below + "/config", config_space(acs))

    def both(self):
        done = self.run_in([os.environ["VERDICT_BOUND"], self.site, self.scratch])
        self.assertEqual(done.returncode, 0, done.stderr)
        ours, theirs = json.loads(done.stdout), machine.read(str(self.site), str(self.scratch))
        self.assertEqual(ours, theirs)
        return ours

    def test_all_there(self):
        now = self.both()
        self.assertEqual(now["path 0"], "pci0000:40/0000:40:01.1/0000:41:00.0/0000:42:00.0/0000:43:00.0")
        self.assertEqual(now["acs 0"], "1d 1d 1d")
        self.assertEqual(now["patch sglang"], "3")

    def test_each_file_missing(self):
        files = [path for part in ("sys", "proc", "site") for path in (self.scratch / part).rglob("*")]
        for path in files:
            if path.is_file() and not path.is_symlink():
                with self.subTest(path.name):
                    content = path.read_bytes()
                    path.unlink()
                    try:
                        self.both()
                    finally:
                        path.write_bytes(content)

    def test_each_file_altered(self):
        before = self.both()
        changes = {
            "sys/module/nvidia/version": ("580.95.06", ["driver"]),
            "sys/module/nvidia/srcversion": ("FFFF", ["driver build"]),
            "proc/driver/nvidia/gpus/0000:c1:00.0/information": ("GPU UUID: GPU-33\n", ["gpu 1"]),
            "sys/bus/pci/devices/0000:43:00.0/current_link_width": ("8", ["link 0"]),
            "sys/bus/pci/devices/0000:42:00.0/config": (config_space(0x00), ["acs 0"]),
            "sys/groups/1/type": ("DMA-FQ", ["iommu 1"]),
            "site/sgl_pcie/libpar.so": ("rebuilt", ["libpar.so"]),
            "site/sgl_pcie/sgl-pcie-gpu": ("new", ["sgl-pcie-gpu"]),
            "site/.sgl-pcie/install.json": ('{"sets": {"sglang": {"revision": 4}}}', ["patch sglang"]),
        }
        for name, (content, keys) in changes.items():
            with self.subTest(name):
                path = self.scratch / name
                old = path.read_bytes() if path.exists() else None
                self.put(name, content)
                now = self.both()
                changed = [key for key in sorted(set(before) | set(now)) if before.get(key) != now.get(key)]
                self.assertEqual(changed, keys)
                path.unlink() if old is None else path.write_bytes(old)

    def test_odd_files(self):
        self.put("sys/module/nvidia/version", "")
        self.put("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  575.57.08  Release\nGCC 12.2.0\n")
        self.assertEqual(self.both()["driver"], "575.57.08")
        self.put("sys/bus/pci/devices/0000:41:00.0/config", bytes(64))
        self.assertEqual(self.both()["acs 0"], "unreadable")
        self.put("site/.sgl-pcie/install.json", "[")
        self.assertEqual(self.both()["patch"], "unreadable")


class Package(Case):
    """Our Python in a site of its own, beside a library."""

    def setUp(self):
        super().setUp()
        self.site = self.scratch / "site"
        self.site.mkdir()
        (self.site / "sgl_pcie").mkdir()
        for path in os.scandir(os.path.dirname(machine.__file__)):
            if path.name.endswith(".py"):
                (self.site / "sgl_pcie" / path.name).write_bytes(open(path, "rb").read())
        (self.site / "sgl_pcie" / "libpar.so").write_text("library")


class Files(Package):
    def test_what_is_written_is_read_by_both(self):
        path = self.write(self.site, "verdict.json", verdict({**self.bound(self.site), "driver": "580.95.05"}))
        self.assertEqual(path, self.state / state.key(str(self.site)) / "verdict.json")
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o644)
        self.assertEqual(os.listdir(path.parent), ["verdict.json"])
        self.assertEqual(self.shown(self.site)["reasons"], [])
        self.assertTrue(self.shown(self.site)["fresh"])
        self.assertEqual(self.loaded(self.site), "3")

    def test_each_change_alone_makes_it_stale_for_both(self):
        bound = {**self.bound(self.site), "driver": "580.95.05", "link 0": "x16, to 32.0 GT/s PCIe"}
        self.write(self.site, "verdict.json", verdict(bound))
        a, b = GPUS
        cases = {
            "gpu 0 was %s, is %s" % (a, b): ({"FAKE_GPUS": "%s,%s" % (b, a)}, None),
            "gpu 1 was %s, is absent" % b: ({"FAKE_GPUS": a}, None),
            "gpu 1 was %s, is GPU-3" % b: ({"FAKE_GPUS": a + ",GPU-3"}, None),
            "libpar.so was": ({}, lambda: (self.site / "sgl_pcie/libpar.so").write_text("rebuilt")),
        }
        for sentence, (environment, change) in cases.items():
            with self.subTest(sentence):
                if change:
                    change()
                told = self.shown(self.site, **environment)
                self.assertFalse(told["fresh"])
                self.assertIn(sentence, " ".join(told["reasons"]))
                self.assertIn(sentence, self.loaded(self.site, **environment))

    def test_an_nvml_that_does_not_come_back_is_asked_by_a_child(self):
        self.write(self.site, "verdict.json", verdict({**self.bound(self.site), "driver": "580.95.05"}))
        self.assertIn("gpu 0 was %s, is absent" % GPUS[0], self.shown(self.site, FAKE_CRASH="1")["reasons"])

    def test_files_that_do_not_count(self):
        path = self.write(self.site, "verdict.json", verdict({**self.bound(self.site), "driver": "580.95.05"}))
        good = path.read_bytes()
        for spoil in (b"{", b"[]", b'{"schema": "other"}', good[: len(good) // 2], b'{"schema": "sgl-pcie-verdict/1"}'):
            path.write_bytes(spoil)
            self.assertFalse(self.shown(self.site)["present"], spoil)
            self.assertIn("verdict", self.loaded(self.site))
        path.write_bytes(good.rstrip()[:-1] + b', "level": 4}')
        for said in (" ".join(self.shown(self.site)["reasons"]), self.loaded(self.site)):
            self.assertIn("duplicate object key near '\"level\"'", said)
        path.write_bytes(good)
        if os.geteuid() == 0:  # a third user's file does not count, root's does
            os.chown(path, 4711, 4711)
            self.assertFalse(self.shown(self.site)["present"])
            self.assertIn("another user", self.loaded(self.site))
            os.chown(path, 0, 0)
        for mode in (0o664, 0o646, 0o666):  # whoever wrote that, its owner need not have
            path.chmod(mode)
            told = self.shown(self.site)
            self.assertFalse(told["present"], oct(mode))
            for said in (told["reasons"][0], self.loaded(self.site)):
                self.assertIn("verdict.json: others than its owner may write it", said)
        path.chmod(0o644)
        moved = path.with_name("elsewhere")
        path.rename(moved)
        path.symlink_to(moved)
        self.assertFalse(self.shown(self.site)["present"])
        self.assertIn("no verdict", self.loaded(self.site))

    def test_damaged_bytes_are_no_verdict_and_no_crash(self):
        path = self.write(self.site, "verdict.json", verdict({**self.bound(self.site), "driver": "580.95.05"}))
        good, dice = path.read_bytes(), random.Random(1)
        for _ in range(60):
            bad = bytearray(good)
            token = dice.choice(list(re.finditer(rb'"[^"]*"|[0-9]+|[[{]', good)))
            bad[token.start() : token.end()] = dice.choice([b"null", b"[]", b"{}", b'"x"', b"-1", b"1e300", b"true", b"99999999999999999999"])
            path.write_bytes(bad)
            self.shown(self.site)

    def test_damaged_inside_is_none_for_both(self):
        told = verdict({**self.bound(self.site), "driver": "580.95.05"})
        for spoil in ({"world": 1}, {"backend": "peer"}, {"result": None}, {"gpus": [GPUS[0]] * 2}):
            self.write(self.site, "verdict.json", {**told, "results": [{**told["results"][0], **spoil}]})
            self.assertIn("damaged: ", self.shown(self.site)["reasons"][0], spoil)
            self.assertFalse(self.shown(self.site)["present"])
            self.assertIn("damaged: ", self.loaded(self.site), spoil)
        nine = ["GPU-%d" % i for i in range(9)]
        for spoil in ({"level": 0}, {"level": 9}, {"results": [{"backend": "host", "world": 9, "gpus": nine, "result": "PASS"}]},
                      {"results": [{"backend": "host", "world": 1, "gpus": nine[:1], "result": "PASS"}]}):  # fmt: skip
            self.write(self.site, "verdict.json", {**told, **spoil})
            self.assertIn("damaged: ", self.shown(self.site)["reasons"][0], spoil)
            self.assertIn("damaged: ", self.loaded(self.site), spoil)
            self.assertTrue(list(schema.validator("verdict.schema.json").iter_errors({**told, **spoil})), spoil)

    @unittest.skipIf(os.geteuid() != 0, "needs root")
    def test_of_a_users_and_roots_one_that_holds_counts_and_of_two_the_newer(self):
        told = verdict({**self.bound(self.site), "driver": "580.95.05"})
        failed = verdict({**self.bound(self.site), "driver": "580.95.05"}, result="FAIL")
        changed = {**told, "bound": {**told["bound"], "gpu 1": "GPU-3"}}
        early, late = {"created": "2026-11-29T23:59:59Z"}, {"created": "2026-11-30T00:00:00Z"}
        for case, own, roots, usable in (
            ("root's holds", {**changed, **late}, {**told, **early}, True),
            ("the user's holds", {**told, **early}, {**changed, **late}, True),
            ("root's failed later", {**told, **early}, {**failed, **late}, False),
            ("root's passed later", {**failed, **early}, {**told, **late}, True),
            ("the user's failed later", {**failed, **late}, {**told, **early}, False),
            ("no time: the user's", told, failed, True),
        ):
            with self.subTest(case):
                self.assertEqual(self.seen_by_a_user(own, roots), (usable, usable))

    def seen_by_a_user(self, own, roots):
        """(by the tool, by SGLang), in a mount namespace where passwd gives the user a home and /var/lib is ours."""
        home = self.scratch / "home"
        (self.scratch / "passwd").write_text("root:x:0:0::/root:/bin/sh\nsomebody:x:4711:4711::%s:/bin/sh\n" % home)
        for folder in (self.scratch / "roots", home):
            shutil.rmtree(folder, ignore_errors=True)
        for name, content in (("own", own), ("roots", roots)):
            self.environment["SGL_PCIE_STATE"] = str(self.scratch / name)
            self.write(self.site, "verdict.json", content)
        del self.environment["SGL_PCIE_STATE"]
        (home / ".local/state").mkdir(parents=True)
        (self.scratch / "own").rename(home / ".local/state/sgl-pcie")
        for path in (home, *home.rglob("*")):
            os.chown(path, 4711, 4711)
        inside = """set -e; mount --bind "$1/passwd" /etc/passwd; mkdir -p /var/lib; mount -t tmpfs none /var/lib
            cp -r "$1/roots" /var/lib/sgl-pcie; shift; exec setpriv --reuid=4711 --regid=4711 --clear-groups "$@" """
        space = ["unshare", "--mount", "sh", "-c", inside, "sh", self.scratch]
        if self.run_in([*space, "true"]).returncode:
            self.skipTest("no mount namespace can be had")
        shown = json.loads(self.run_in([*space, os.environ["VERDICT_BOUND"], "show", self.site]).stdout)
        code = "import sys; sys.path.insert(0, %r); from sgl_pcie import verdict; print(verdict.load()[1])" % str(self.site)
        return not shown["reasons"], self.run_in([*space, sys.executable, "-B", "-c", code]).stdout == "\n"

    def test_levels_and_results_that_do_not_count(self):
        bound = {**self.bound(self.site), "driver": "580.95.05"}
        for level, result, words in ((2, "PASS", "level 2"), (3, "FAIL", "nothing passed"), (3, "INCONCLUSIVE", "nothing passed")):
            self.write(self.site, "verdict.json", verdict(bound, level, result))
            told = self.shown(self.site)
            self.assertTrue(told["present"] and told["reasons"])
            self.assertIn(words, told["reasons"][0])
            self.assertIn(words, self.loaded(self.site))

    def test_two_installs_do_not_mix(self):
        other = self.scratch / "other"
        other.mkdir()
        self.write(self.site, "verdict.json", verdict({**self.bound(self.site), "driver": "580.95.05"}))
        self.assertTrue(self.shown(self.site)["present"])
        self.assertFalse(self.shown(other)["present"])

    @unittest.skipIf(os.geteuid() != 0, "needs root")
    def test_roots_verdict_in_somebodys_folder_is_roots_and_can_be_replaced(self):
        above = self.scratch / "theirs"
        above.mkdir()
        os.chown(above, 4711, 4712)
        bound = {**self.bound(self.site), "driver": "580.95.05"}
        self.environment["SGL_PCIE_STATE"] = str(above / "a" / "state")
        path = self.write(self.site, "verdict.json", verdict(bound))
        for folder in (path.parent, path.parent.parent, path.parent.parent.parent):
            self.assertEqual((os.stat(folder).st_uid, os.stat(folder).st_gid), (4711, 4712), folder)
        self.assertEqual(os.stat(path).st_uid, 0)
        file = self.scratch / "content.json"
        file.chmod(0o644)
        done = self.run_in(["setpriv", "--reuid=4711", "--regid=4712", "--clear-groups", os.environ["VERDICT_BOUND"], "write", "verdict.json", file, self.site])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(os.stat(path).st_uid, 4711)
        self.assertFalse(self.shown(self.site)["present"], "what a user proved holds for that user, not for root")

    def test_no_umask_hides_it_or_opens_it(self):
        for umask in (0o077, 0o000):
            shutil.rmtree(self.state, ignore_errors=True)
            old = os.umask(umask)
            try:
                path = self.write(self.site, "verdict.json", verdict({"driver": "1", "gpu 0": "a", "libpar.so": "b"}))
            finally:
                os.umask(old)
            modes = [os.stat(part).st_mode & 0o777 for part in (path, path.parent, path.parent.parent)]
            self.assertEqual(modes, [0o644, 0o755, 0o755])


class Sound(Case):
    """Whatever is put in the place of whatever: both sides call the same files damaged."""

    JUNK = (None, [], {}, "", "x", 0, -1, 1, 2, 4, 5, 9, 33, 1.5, True, [[]], [None], [["x"]], {"a": None}, GPUS, [GPUS], GPUS * 2, 1 << 40, "host", "FAIL",
            "unreadable", dict.fromkeys(GPUS))  # fmt: skip

    def altered(self, content):
        for path in self.paths(content):
            for junk in (*self.JUNK, ...):
                out = at = json.loads(json.dumps(content))
                for step in path[:-1]:
                    at = at[step]
                if junk is ...:
                    del at[path[-1]]
                else:
                    at[path[-1]] = junk
                yield out

    def paths(self, content, above=()):
        items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
        for name, value in items:
            yield (*above, name)
            yield from self.paths(value, (*above, name))

    def python_says(self, module, content):
        try:
            module.parse(content)
        except (LookupError, TypeError, ValueError):
            return False
        return True

    def test_both_sides_agree(self):
        bound = {"driver": "580.95.05", "gpu 0": GPUS[0], "gpu 1": GPUS[1], "libpar.so": "0" * 64}
        told, measured = verdict(bound), profile(bound)
        told["results"].append({"backend": "upstream", "world": 2, "gpus": GPUS, "result": "PASS", "library": "0" * 64})
        told["pairs"].append({"backend": "pull", "gpus": GPUS, "failed": [GPUS]})
        more = {"max_bytes": 1 << 20, "algorithm": "push-one-shot", "lanes": 8, "threads": 512, "us": 1, "stock_us": 2}
        measured["tables"][0]["entries"].append(more)
        for module, content in ((verdicts, told), (profiles, measured)):
            files = [content, *(file for file in self.altered(content) if file.get("schema") == content["schema"])]
            done = subprocess.run(
                [os.environ["VERDICT_BOUND"], "sound"], input="\n".join(map(json.dumps, files)), text=True, capture_output=True, check=True
            )  # fmt: skip
            said = done.stdout.splitlines()
            self.assertEqual(len(said), len(files))
            self.assertEqual(said[0], "ok")
            for file, words in zip(files, said):
                self.assertEqual(words == "ok", self.python_says(module, file), (words, file))


class Upstream(Package):
    """What a probe says of SGLang's own kernel holds for the bytes that it ran, and leaves the rest alone."""

    def setUp(self):
        super().setUp()
        self.library = self.scratch / "site" / "sgl_pcie" / "libupstream.so"
        told = verdict({**self.bound(self.site), "driver": "580.95.05"})
        for backend in ("push", "pull"):
            told["pairs"].append({"backend": backend, "gpus": GPUS, "failed": []})
        self.path = self.write(self.site, "verdict.json", told)

    def add(self, result, library, expect=0):
        done = self.run_in([os.environ["VERDICT_BOUND"], "add", self.site, result, library, *GPUS])
        self.assertEqual(done.returncode, expect, done.stderr)
        return done.stderr

    def covered(self):
        code = "from sgl_pcie import verdict; v, why = verdict.load(); print(v.covers('upstream', %r), v.covers('host', %r))"
        return self.python(self.site, code % (GPUS, GPUS))

    def test_it_holds_for_the_library_that_was_run(self):
        sums = {text: hashlib.sha256(text.encode()).hexdigest() for text in ("built", "again")}
        self.add("PASS", sums["built"])
        self.assertEqual(self.covered(), "False True")  # not installed yet
        self.assertIn("upstream stale, libupstream.so is another", self.shown(self.site)["summary"])
        self.library.write_text("built")
        self.assertEqual(self.covered(), "True True")
        self.assertEqual(self.shown(self.site)["summary"], "PASS of level 3: host 2; upstream 2")
        self.library.write_text("again")
        self.assertEqual(self.covered(), "False True")
        self.assertTrue(self.shown(self.site)["fresh"])
        self.add("PASS", sums["again"])
        self.assertEqual(self.covered(), "True True")
        self.add("PASS", "-")
        self.assertEqual(self.covered(), "False True")
        self.library.unlink()
        self.assertEqual(self.covered(), "True True")

    def test_it_is_of_the_schema_and_fails_on_its_own(self):
        self.add("FAIL", "0" * 64)
        told = json.loads(self.path.read_text())
        schema.validator("verdict.schema.json").validate(told)
        self.assertEqual([r["result"] for r in told["results"]], ["FAIL", "PASS"])
        self.assertEqual(self.covered(), "False True")

    def test_many_at_once_lose_nothing(self):
        """Read, changed and written by one process at a time."""
        four = [*GPUS, "GPU-3", "GPU-4"]
        told = json.loads(self.path.read_text())
        told["pairs"] = [{"backend": backend, "gpus": four, "failed": []} for backend in ("push", "pull", "host")]
        self.write(self.site, "verdict.json", told)
        sets = [(a, b) for a in four for b in four if a < b]
        processes = [
            subprocess.Popen([os.environ["VERDICT_BOUND"], "add", self.site, "PASS", "-", *pair], env=self.environment, stdout=subprocess.DEVNULL)
            for pair in sets * 3
        ]  # fmt: skip
        self.assertEqual([process.wait(60) for process in processes], [0] * len(processes))
        found = [tuple(r["gpus"]) for r in json.loads(self.path.read_text())["results"] if r["backend"] == "upstream"]
        self.assertEqual(sorted(found), sorted(sets))

    def test_without_a_fresh_verdict_it_is_not_kept(self):
        (self.site / "sgl_pcie" / "libpar.so").write_text("rebuilt")
        before = self.path.read_bytes()
        self.assertIn("no fresh verdict of level 3", self.add("PASS", "-", expect=1))
        self.assertEqual(self.path.read_bytes(), before)
        self.path.unlink()
        self.assertIn("no fresh verdict of level 3", self.add("PASS", "-", expect=1))


if __name__ == "__main__":
    unittest.main()
