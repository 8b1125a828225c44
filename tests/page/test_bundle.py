"""report --from: a malformed field of a bundle is refused by name, whatever is wrong with it, and never passed on.

Every field of the bundle in docs/example is taken away, and replaced by a value of each other type. docs/json-schema
says which of these bundles are malformed.
"""

import functools
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent / "cli")]

import schema  # noqa: E402

CLI = os.environ["SGL_PCIE"]
VALUES = [None, True, 7, 1.5, "text", [], {}]
MISSING = object()
# Words that a later version may add to: they do not make a file of ours malformed.
GROWING = {"algorithm", "backend", "type", "name", "stock", "fastest", "chosen"}
SEEN = ("type", "enum", "const", "required", "additionalProperties", "minimum", "maximum", "minLength", "maxLength",
        "pattern", "minItems", "maxItems", "multipleOf")  # fmt: skip
# Of these it also counts what the fields mean together (verify/verdict/sound.c), which a schema cannot say.
SOUND = ("verdict", "profile")


def part(name, reference):
    return schema.validator(name).evolve(schema={"$ref": reference})


PARTS = [
    ((), part("verify-parts.json", "verify-parts.json#/$defs/bundle")),
    (("verdict",), part("verdict.schema.json", "verdict.schema.json")),
    (("profile", "content"), part("profile.schema.json", "profile.schema.json")),
    (("bench",), part("bench-parts.json", "bench-parts.json#/$defs/bench")),
]


def at(value, path):
    for step in path:
        value = value[step]
    return value


def inside(bundle, path):
    """The part of a bundle that may not have it."""
    for step in path:
        bundle = bundle.get(step) if isinstance(bundle, dict) else None
    return bundle


def spelled(path):
    """status.install.files[0].oid"""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def said(path):
    """How an error begins: a part with a schema of its own is named first."""
    for part, start in (("verdict", 1), ("profile", 2), ("bench", 1)):
        if path[0] == part and len(path) > start and path[start] != "schema" and (part != "profile" or path[1] == "content"):
            return f"{part}: field '{spelled(path[start:])}"
    return "" if path == ("recording",) else f"field '{spelled(path)}"


def fields(value, path=()):
    """Every field, of a list its first item; a recording has a reader and tests of its own."""
    if path[-1:] in (("recording",), ("bound",)):
        return
    for key, item in value.items() if isinstance(value, dict) else enumerate(value[:1]):
        yield (*path, key)
        if isinstance(item, (dict, list)):
            yield from fields(item, (*path, key))


def recorded():
    """The fields of a recording: of each list the last item, whose parents come before it."""
    for part, value in whole()["recording"].items():
        if isinstance(value, (dict, list)):
            last = (len(value) - 1,) if isinstance(value, list) else ()
            content = value[-1] if isinstance(value, list) and value else value
            for key in content if isinstance(content, dict) else ():
                yield ("recording", part, *last, key)


def bad_values(value):
    if isinstance(value, bool) or value is None:
        return []
    if isinstance(value, (int, float)):
        return [-2, -1, 0, 1, 9, 1 << 20]
    if isinstance(value, str):
        return ["", "no such", "0xFG", "0x-1", "0X1f", "A" * 40, "a" * 600]
    return [[], value * 100] if isinstance(value, list) else []


@functools.lru_cache
def whole_text():
    """The example: no list longer than two, and what it happens not to have."""
    bundle = json.loads((ROOT / "docs" / "example" / "report.json").read_text())
    shorten({key: value for key, value in bundle.items() if key != "recording"})
    bundle["verdict"]["pairs"][0]["failed"] = [bundle["verdict"]["pairs"][0]["gpus"]]
    bundle["verdict"]["results"][0] |= {"reason": "a reason", "library": "0" * 64}
    bundle["status"]["verdict"]["reasons"] = ["a reason"]
    bundle["bench"]["troubles"] = ["a trouble"]
    bundle["bench"]["steps"] = [{"step": "1x2", "world": 2, "type": "bf16", "parts": [{"times": 1, "bytes": 2}], "measured": True,
                                 "served": True, "stock_ms": 1.5, "ours_ms": None, "saved_ms": None, "sentence": "a sentence",
                                 "backends": "host"}]  # fmt: skip
    return json.dumps(bundle)


def shorten(value):
    if isinstance(value, list):
        del value[2:]
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, (dict, list)):
            shorten(item)


def whole():
    return json.loads(whole_text())


def put(bundle, path, value):
    owner = at(bundle, path[:-1])
    if value is MISSING:
        del owner[path[-1]]
    else:
        owner[path[-1]] = value
    return bundle


def malformed(bundle):
    """What the schemas have against it that the program is to see, too."""
    errors = []
    for path, validator in PARTS:
        content = inside(bundle, path)
        if isinstance(content, dict):
            errors += [error for error in validator.iter_errors(content) if is_seen(error)]
    return errors


def is_seen(error):
    if error.context:  # anyOf: malformed if each of them is
        branches = {inner.schema_path[0] for inner in error.context}
        return all(any(is_seen(inner) for inner in error.context if inner.schema_path[0] == branch) for branch in branches)
    if error.validator == "enum" and isinstance(error.instance, str):
        return error.absolute_path[-1] not in GROWING
    return error.validator in SEEN


class Bundle(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.path = Path(scratch.name) / "bad.json"

    def report(self, bundle, *arguments):
        self.path.write_text(json.dumps(bundle))
        return subprocess.run([CLI, "report", "--from", self.path, *arguments], capture_output=True, text=True, check=False,
                              timeout=60)  # fmt: skip

    def refused(self, bundle, said):
        done = self.report(bundle, "--json")
        told = json.loads(done.stdout)
        schema.validate(told)
        self.assertEqual((done.returncode, told["exit_code"], told["bundle"]), (1, 1, None), told["message"])
        self.assertIn(f"'{self.path}': {said}", told["message"])
        self.assertIn("sgl-pcie report", told["next"])

    def test_the_bundle_that_all_of_this_starts_from_is_well_formed(self):
        self.assertEqual(malformed(whole()), [])
        done = self.report(whole(), "--json")
        self.assertEqual(done.returncode, 0, done.stdout)
        schema.validate(json.loads(done.stdout))

    def test_every_field_of_another_type_or_missing_is_refused_by_name(self):
        tried = refused = 0
        for path in list(fields(whole())):
            for value in [MISSING] + VALUES if isinstance(path[-1], str) else VALUES:
                bundle = put(whole(), path, value)
                if path == ("schema",) or path[-1] == "schema" and isinstance(value, str):
                    continue  # no bundle, or a part of another version
                tried += 1
                with self.subTest(spelled(path), value="missing" if value is MISSING else value):
                    if malformed(bundle):
                        refused += 1
                        self.refused(bundle, said(path))
                    elif path[0] in SOUND and self.report(bundle).returncode == 1:
                        self.refused(bundle, f"{path[0]}: field '")
                    else:
                        self.assertEqual(self.report(bundle).returncode, 0)
        self.assertGreater(tried, 900)
        self.assertGreater(refused, 700)

    def test_every_value_that_is_none_by_its_schema_is_refused_by_name(self):
        """Of the right type, and too small, too large, too many, empty, or no such word."""
        refused = 0
        for path in [*fields(whole()), *recorded()]:
            for value in bad_values(at(whole(), path)):
                bundle = put(whole(), path, value)
                if path[-1] == "schema" or not malformed(bundle):
                    continue
                with self.subTest(spelled(path), value=str(value)[:20]):
                    refused += 1
                    done = self.report(bundle, "--json")
                    self.assertEqual(done.returncode, 1, done.stdout[-300:])
                    message = json.loads(done.stdout)["message"]
                    self.assertIn(str(path[-1] if isinstance(path[-1], str) else path[-2]), message)
        self.assertGreater(refused, 150)

    def test_what_was_expected_is_said(self):
        for path, value, said in (
            (("findings", 0, "level"), "bad", "field 'findings[0].level' is 'bad', not one of info warn fail"),
            (("findings", 0, "level"), "info warn", "field 'findings[0].level' is 'info warn', not one of info warn fail"),
            (("findings", 0, "level"), "", "field 'findings[0].level' is '', not one of info warn fail"),
            (("findings", 0, "code"), "XX", "field 'findings[0].code' is 'XX', not one of CNS GNS TNS DR NS or null"),
            (("status", "install", "files", 1, "oid"), 7,
             "field 'status.install.files[1].oid' is an integer, not a string like ^[0-9a-f]{40}$ or null"),
            (("findings", 0, "id"), "P2P", "field 'findings[0].id' is 'P2P', not a string like ^[a-z0-9-]+"),
            (("findings", 0, "text"), "", "field 'findings[0].text' is '', not a string that is not empty"),
            (("bench", "groups", 0, "rates", "node_us"), -0.5, "bench: field 'groups[0].rates.node_us' is -0.5, not a number, at least 0"),
            (("bench", "groups", 0, "world"), 9, "bench: field 'groups[0].world' is 9, not an integer, 2 to 8"),
            (("recording", "gpus", 0, "memory"), -1, "recording: gpus[0]: field 'memory' is -1, not within 0 to"),
            (("recording", "driver", "module"), "ours", "recording: driver: field 'module' is 'ours'"),
            (("verdict", "results", 0, "world"), 2.5, "verdict: field 'results[0].world' is a number, not an integer"),
            (("verdict", "results", 0, "gpus", 1), None, "verdict: field 'results[0].gpus[1]' is null, not a string"),
            (("profile", "content", "tables"), {}, "profile: field 'tables' is an object, not a list"),
            (("bench", "groups", 0, "rows"), [None] * 65, "bench: field 'groups[0].rows' has 65 items, not 0..64"),
            (("bench", "groups", 0, "rates"), [], "bench: field 'groups[0].rates' is a list, not an object"),
            (("verdict", "results", 0, "world"), 8, "verdict: field 'results[0].world' is 8, of 2 GPUs"),
            (("status", "pending"), MISSING, "field 'status.pending' is missing, expected true or false"),
            (("extra",), 1, "field 'extra' is not known"),
            (("findings", 0, "more\x1b[2J"), 1, "field 'findings[0].more?[2J' is not known"),
        ):  # fmt: skip
            with self.subTest(said):
                self.refused(put(whole(), path, value), said)

    def test_nothing_is_written_of_a_malformed_one(self):
        out = self.path.with_name("out.html")
        done = self.report(put(whole(), ("checks",), 7), "--out", out)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.splitlines(), [
            f"sgl-pcie: '{self.path}': field 'checks' is an integer, not a list or null",
            "  next: sgl-pcie report --out report.json # on the machine that it is of",
        ])  # fmt: skip
        self.assertFalse(out.exists())

    def test_a_part_of_another_version_is_left_to_that_version(self):
        for name in ("verdict", "bench"):
            bundle = whole()
            bundle[name] = {"schema": f"sgl-pcie-{name}/9", "level": "high", "groups": 7}
            done = self.report(bundle, "--json")
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertEqual(json.loads(done.stdout)["bundle"][name], bundle[name])

    def test_a_recording_goes_on_as_it_was_understood(self):
        bundle = whole()
        bundle["recording"] |= {"nodes": None}
        done = self.report(bundle, "--json")
        self.assertEqual(done.returncode, 0, done.stdout)
        told = json.loads(done.stdout)
        schema.validate(told)
        self.assertEqual(told["bundle"]["recording"]["nodes"], [])
        for path, value, said in (
            (("recording",), MISSING, "field 'recording' is missing"),
            (("recording",), 7, "field 'recording' is not an object"),
            (("recording",), {}, "recording: field 'schema' is missing"),
            (("recording", "gpus", 0, "bdf"), 7, "recording: gpus[0]: field 'bdf' is not a string"),
        ):
            self.refused(put(whole(), path, value), said)


if __name__ == "__main__":
    unittest.main()
