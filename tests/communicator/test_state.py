"""The files of a machine: whose count, what is damaged, what is stale. Each that does not count says why."""

import copy
import json
import os
import re
import sys
import unittest
from unittest import mock

import common
import jsonschema

sys.path.insert(0, str(common.ROOT / "python"))

from sgl_pcie import machine, profile, state, verdict  # noqa: E402

DOCS = common.ROOT / "docs"
EXAMPLES = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", (DOCS / "formats.md").read_text(), re.S)]
VERDICT, PROFILE = EXAMPLES
SCHEMAS = {
    name: json.loads((DOCS / "json-schema" / (name + ".schema.json")).read_text()) for name in ("verdict", "profile")
}

DELETE = object()
HUGE = 1 << 70


def altered(content, path, value):
    out = copy.deepcopy(content)
    at = out
    for step in path[:-1]:
        at = at[step]
    if value is DELETE:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return out


class Files(common.Scratch, unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.environ = {state.STATE: str(self.scratch)}
        self.folder = self.scratch / state.key()
        self.folder.mkdir()
        self.path = self.folder / "verdict.json"
        environ = mock.patch.dict(os.environ, self.environ)
        environ.start()
        self.addCleanup(environ.stop)

    def write(self, content):
        self.path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())

    def refused(self, names):
        content, reason = state.read("verdict.json", verdict.SCHEMA)
        self.assertIsNone(content)
        self.assertIn(names, reason)

    def test_read(self):
        self.write(VERDICT)
        self.assertEqual(state.read("verdict.json", verdict.SCHEMA), (VERDICT, str(self.path)))

    def test_absent(self):
        self.refused("there is none")

    def test_not_json(self):
        for content in (b"", b"{", b"\xff\xfe", b"NaN", b'{"a": Infinity}', b"[" * 100000, b"1", b"[]", b"null"):
            with self.subTest(content[:10]):
                self.write(content)
                self.refused(str(self.path))

    def test_the_same_key_twice(self):
        """The words are those of sgl-pcie, which refuses it too: neither reader is to believe what the other does not."""
        self.write(json.dumps(VERDICT).encode()[:-1] + b', "level": 4}')
        self.refused("duplicate object key near '\"level\"'")

    def test_another_schema(self):
        self.write(dict(VERDICT, schema="sgl-pcie-verdict/2"))
        self.refused("sgl-pcie-verdict/1")

    def test_too_large(self):
        self.path.write_bytes(b" " * (state.MAX_BYTES + 1))
        self.refused("larger")

    def test_no_file(self):
        real = self.folder / "real"
        real.write_text(json.dumps(VERDICT))
        for make in (lambda: self.path.symlink_to(real), self.path.mkdir, lambda: os.mkfifo(self.path)):
            make()
            self.refused(str(self.path))
            (os.rmdir if self.path.is_dir() and not self.path.is_symlink() else os.unlink)(self.path)

    @unittest.skipIf(os.geteuid() != 0, "only root can give a file away")
    def test_another_users(self):
        self.write(VERDICT)
        os.chown(self.path, 12345, 12345)
        self.refused("another user, 12345")

    def test_folders(self):
        self.assertEqual(state.folders({state.STATE: "/x"}, 0), ["/x"])
        self.assertEqual(state.folders({}, 0), ["/var/lib/sgl-pcie"])
        self.assertEqual(state.folders({state.STATE: ""}, 0), ["/var/lib/sgl-pcie"])
        with mock.patch.object(state.pwd, "getpwuid", lambda uid: mock.Mock(pw_dir="/home/u")):
            self.assertEqual(
                state.folders({"HOME": "/elsewhere"}, 7), ["/home/u/.local/state/sgl-pcie", "/var/lib/sgl-pcie"]
            )
        self.assertEqual(state.folders({}, 4242424), ["/var/lib/sgl-pcie"], "a user whom passwd does not know")

    def test_a_folder_that_depends_on_where_one_stands_is_none(self):
        self.write(VERDICT)
        here = os.getcwd()
        self.addCleanup(os.chdir, here)
        os.chdir(self.scratch)
        relative = os.path.relpath(self.path.parents[1])
        self.assertTrue(os.path.isfile(os.path.join(relative, self.path.parent.name, self.path.name)))
        found, reason = state.read(self.path.name, VERDICT["schema"], environ={state.STATE: relative})
        self.assertIsNone(found)
        self.assertIn("$SGL_PCIE_STATE is %r" % relative, reason)

    def test_installs_do_not_mix(self):
        a, b = self.scratch / "a", self.scratch / "b"
        a.mkdir()
        b.symlink_to(a)
        self.assertEqual(state.key(str(a)), state.key(str(b)), "one install by two names")
        self.assertNotEqual(state.key(str(a)), state.key(str(self.scratch)))
        self.assertRegex(state.key(str(a)), "^[0-9a-f]{16}$")

    # --- of two folders: the user's own, and root's ---

    def in_both(self, own, roots):
        """The verdict by which SGLang goes."""
        folders = [self.scratch / name for name in ("own", "roots")]
        for folder, content in zip(folders, (own, roots)):
            (folder / state.key()).mkdir(parents=True, exist_ok=True)
            (folder / state.key() / "verdict.json").write_text(json.dumps(content))
        with mock.patch.object(state, "folders", lambda environ: [str(folder) for folder in folders]):
            return self.load()

    def test_what_went_stale_does_not_hide_what_holds(self):
        changed = altered(VERDICT, ["bound", "driver"], "570.1")
        other = dict(VERDICT, level=4)
        self.assertEqual(self.in_both(VERDICT, other)[0].level, 3, "the nearer one, of two that hold")
        self.assertEqual(self.in_both(changed, other)[0].level, 4)
        self.assertEqual(self.in_both({"schema": VERDICT["schema"]}, other)[0].level, 4)
        self.assertEqual(self.in_both(VERDICT, changed)[0].level, 3)
        farther = altered(VERDICT, ["bound", "driver"], "571.1")
        self.assertIn("driver was 570.1", self.in_both(changed, farther)[1], "the nearer one, of two that are stale")
        failed = altered(VERDICT, ["results", 0, "result"], "FAIL")
        self.assertIn("nothing passed", self.in_both(failed, other)[1], "what holds is not passed over for a better one")

    # --- the verdict as a whole ---

    def load(self, now=None):
        return verdict.load(now=now or VERDICT["bound"])

    def test_fresh(self):
        self.write(VERDICT)
        told, reason = self.load()
        self.assertEqual(reason, "")
        self.assertEqual(told.level, 3)
        gpus = VERDICT["results"][0]["gpus"]
        self.assertTrue(told.covers("host", gpus))
        self.assertFalse(told.covers("push", gpus))

    def test_anything_changed_makes_it_stale(self):
        self.write(VERDICT)
        for name, value in VERDICT["bound"].items():
            for now in (
                dict(VERDICT["bound"], **{name: "another"}),
                {k: v for k, v in VERDICT["bound"].items() if k != name},
            ):
                told, reason = self.load(now)
                self.assertIsNone(told)
                self.assertIn("stale: %s was %s, is" % (name, value), reason)
            told, reason = self.load(dict(VERDICT["bound"], **{name: machine.UNREADABLE}))
            self.assertIsNotNone(told, "what cannot be read tells nothing")
        self.assertIn("gpu 2 was absent", self.load(dict(VERDICT["bound"], **{"gpu 2": "GPU-3"}))[1])

    def test_order_of_gpus(self):
        self.write(VERDICT)
        now = dict(VERDICT["bound"])
        now["gpu 0"], now["gpu 1"] = now["gpu 1"], now["gpu 0"]
        self.assertIn("gpu 0 was", self.load(now)[1])

    def test_level(self):
        for level in (1, 2):
            self.write(dict(VERDICT, level=level))
            self.assertIn("of level %d, 3 is needed" % level, self.load()[1])
        self.write(dict(VERDICT, level=4))
        self.assertIsNotNone(self.load()[0])

    def test_nothing_passed(self):
        self.write(altered(VERDICT, ["results", 0, "result"], "INCONCLUSIVE"))
        self.assertIn("nothing passed", self.load()[1])
        self.write(dict(VERDICT, results=[]))
        self.assertIn("nothing passed", self.load()[1])

    def test_profile(self):
        (self.folder / "profile.json").write_text(json.dumps(PROFILE))
        tables, reason = profile.load(PROFILE["bound"])
        self.assertEqual((len(tables), reason), (1, ""))
        tables, reason = profile.load({"libpar.so": "f" * 64})
        self.assertEqual(tables, ())
        self.assertIn("stale: libpar.so was", reason)
        (self.folder / "profile.json").write_text(json.dumps(dict(PROFILE, tables=[{}])))
        self.assertIn("damaged", profile.load(PROFILE["bound"])[1])
        os.unlink(self.folder / "profile.json")
        self.assertIn("no profile", profile.load(PROFILE["bound"])[1])


class Malformed(unittest.TestCase):
    """What the schema refuses is refused by the reader, and the documented examples are taken by both."""

    VERDICTS = [
        (["bound"], DELETE),
        (["bound"], []),
        (["bound"], None),
        (["bound", "driver"], DELETE),
        (["bound", "driver"], 580),
        (["bound", "libpar.so"], DELETE),
        (["bound", "gpu 0"], DELETE),
        (["bound", "iommu 0"], None),
        (["level"], DELETE),
        (["level"], "3"),
        (["level"], 3.5),
        (["level"], None),
        (["results"], DELETE),
        (["results"], None),
        (["results", 0], "PASS"),
        (["results", 0, "backend"], "peer"),
        (["results", 0, "backend"], DELETE),
        (["results", 0, "backend"], ["host"]),
        (["results", 0, "world"], "2"),
        (["results", 0, "world"], True),
        (["results", 0, "result"], "pass"),
        (["results", 0, "result"], True),
        (["results", 0, "result"], "SKIP"),
        (["results", 0, "gpus"], "GPU-1"),
        (["results", 0, "gpus"], [1, 2]),
        (["results", 0, "gpus"], ["GPU-1", "GPU-1"]),
        (["pairs"], DELETE),
        (["pairs", 0, "failed"], DELETE),
        (["pairs", 0, "failed"], [["GPU-1"]]),
        (["pairs", 0, "failed"], [7]),
        (["pairs", 0, "failed"], ""),
        (["results"], ""),
        (["pairs"], {}),
        (["pairs", 0, "backend"], ""),
    ]
    PROFILES = [
        (["bound"], DELETE),
        (["bound", "libpar.so"], DELETE),
        (["bound", "libpar.so"], 1),
        (["tables"], DELETE),
        (["tables"], None),
        (["tables"], {}),
        (["tables", 0, "gpus"], ["GPU-1", "GPU-1"]),
        (["tables", 0, "entries"], {"0": {}}),
        (["tables", 0, "world"], "2"),
        (["tables", 0, "gpus"], "GPU-1"),
        (["tables", 0, "gpus"], [1, 2]),
        (["tables", 0, "entries"], []),
        (["tables", 0, "entries"], None),
        (["tables", 0, "entries", 0], []),
        (["tables", 0, "entries", 0, "max_bytes"], DELETE),
        (["tables", 0, "entries", 0, "max_bytes"], "65536"),
        (["tables", 0, "entries", 0, "max_bytes"], -1),
        (["tables", 0, "entries", 0, "max_bytes"], 1.5),
        (["tables", 0, "entries", 0, "max_bytes"], True),
        (["tables", 0, "entries", 0, "max_bytes"], HUGE),
        (["tables", 0, "entries", 0, "algorithm"], "nccl"),
        (["tables", 0, "entries", 0, "algorithm"], "auto"),
        (["tables", 0, "entries", 0, "algorithm"], 1),
        (["tables", 0, "entries", 0, "algorithm"], DELETE),
        (["tables", 0, "entries", 0, "threads"], 33),
        (["tables", 0, "entries", 0, "threads"], 2048),
        (["tables", 0, "entries", 0, "lanes"], -1),
        (["tables", 0, "entries", 0, "lanes"], None),
    ]
    ERRORS = (LookupError, TypeError, ValueError)

    def check(self, parse, schema, content, changes):
        validator = jsonschema.Draft202012Validator(schema)
        validator.check_schema(schema)
        validator.validate(content)
        parse(content)
        for path, value in changes:
            with self.subTest(path=path, value=value):
                broken = altered(content, path, value)
                self.assertFalse(validator.is_valid(broken))
                with self.assertRaises(self.ERRORS):
                    parse(broken)

    def test_verdict(self):
        self.check(verdict.parse, SCHEMAS["verdict"], VERDICT, self.VERDICTS)

    def test_profile(self):
        self.check(profile.parse, SCHEMAS["profile"], PROFILE, self.PROFILES)

    def test_what_no_schema_can_say(self):
        for path, value in (
            (["results", 0, "world"], 3),
            (["pairs", 1, "failed"], [["GPU-1", "GPU-2"]]),
        ):
            with self.assertRaises(self.ERRORS):
                verdict.parse(altered(VERDICT, path, value))
        for path, value in (
            (["tables", 0, "world"], 3),
            (["tables", 0, "entries", 1, "max_bytes"], 65536),
            (["tables", 0, "entries", 1, "max_bytes"], 1),
        ):
            with self.assertRaises(self.ERRORS):
                profile.parse(altered(PROFILE, path, value))

    def test_every_value_replaced(self):
        """No junk anywhere makes the readers fail in another way than by these errors."""
        for content, parse in ((VERDICT, verdict.parse), (PROFILE, profile.parse)):
            for path in self.paths(content):
                for junk in (None, [], {}, "", "x", 0, -1, 1.5, True, [[]], [None], {"a": None}, DELETE):
                    broken = altered(content, path, junk)
                    try:
                        parse(broken)
                    except self.ERRORS:
                        pass

    def paths(self, content, above=()):
        items = (
            content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
        )
        for name, value in items:
            yield list(above) + [name]
            yield from self.paths(value, list(above) + [name])


if __name__ == "__main__":
    unittest.main()
