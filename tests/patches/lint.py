"""The patch files and the manifest: nothing in them but what they are for.

What is refused here has bitten others: libgit2 applies a patch without looking at its blob ids, lets an added file
replace an existing one, and cannot parse an empty one; renames and mode changes would survive a revert.
"""

import hashlib
import json
import re
import tempfile
import unittest
from pathlib import Path

import real
import source

ALLOWED = {
    "sglang/srt/distributed/device_communicators/custom_all_reduce.py",
    "sglang/srt/distributed/device_communicators/custom_all_reduce_utils.py",
    source.OLD,
    source.NEW,
}
# Every patch that there is: folder of the manifest and entry; vllm/ is the stand-in that tests have for sgl-kernel.
KERNEL = real.MANIFEST["sets"]["sgl-kernel"]
STANDIN = json.loads((source.PATCHES / "manifest.json").read_text())["sets"]["sgl-kernel"]
ALL = [(real.PATCHES, text) for text in real.SET["texts"] + KERNEL["texts"]]
ALL += [(source.PATCHES, text) for text in STANDIN["texts"]]
CONTEXT = 1  # lines of upstream's text on either side of an insertion


def problems(patch):
    """What is wrong with the bytes of a patch file: a list of texts. The whole of its grammar is here."""
    if not patch or b"\r" in patch or b"\0" in patch or not patch.endswith(b"\n"):
        return ["not a text of LF lines"]
    lines = patch.decode().split("\n")[:-1]
    head = re.fullmatch(r"diff --git a/(\S+) b/(\S+)", lines[0])
    if not head or head[1] != head[2] or head[1] not in ALLOWED:
        return ["not one of the files that we patch: " + lines[0]]
    expected = [
        r"index [0-9a-f]{40}\.\.[0-9a-f]{40} 100644",
        "--- a/" + re.escape(head[1]),
        r"\+\+\+ b/" + re.escape(head[1]),
    ]
    found = [
        "the header should match '%s': %s" % (pattern, line)
        for pattern, line in zip(expected, lines[1:4])
        if not re.fullmatch(pattern, line)
    ]
    hunk = None
    for line in lines[4:] + ["@@"]:
        if line.startswith("@@"):
            if hunk is not None and not re.fullmatch(r" {0,%d}\++ {0,%d}" % (CONTEXT, CONTEXT), hunk):
                found.append("not an insertion with %d line of context: '%s'" % (CONTEXT, hunk))
            if line != "@@" and not re.fullmatch(r"@@ -\d+(,\d+)? \+\d+(,\d+)? @@", line):
                found.append("a hunk header that quotes upstream: " + line)
            hunk = ""
        elif hunk is None or line[:1] not in (" ", "+"):
            found.append("neither context nor insertion: " + line)
        else:
            hunk += line[0]
    return found if hunk is not None and len(lines) > 5 else found + ["no hunk"]


class Patches(unittest.TestCase):
    def test_every_patch_is_a_plain_insertion(self):
        for folder, text in ALL:
            with self.subTest(text["patch"]):
                patch = (folder / text["patch"]).read_bytes()
                self.assertEqual(problems(patch), [])
                self.assertIn(b"\nindex %s..%s 100644\n" % (text["pre"].encode(), text["post"].encode()), patch)
                self.assertIn(b"\n--- a/%s\n" % text["path"].encode(), patch)
                self.assertEqual(hashlib.sha256(patch).hexdigest(), text["sha256"])

    def test_pre_becomes_post_and_comes_back(self):
        left = set(real.TEXTS)
        for version in real.PATCHED:
            for key in left & set(real.RELEASES[version]["files"].items()):
                with self.subTest(version=version, path=key[0]):
                    left.discard(key)
                    self.there_and_back(real.PATCHES, real.TEXTS[key], real.pristine(version, key[0]))
        self.assertEqual(left, set(), "texts that no release has")

    def test_the_standin_becomes_post_and_comes_back(self):
        for text in STANDIN["texts"]:
            self.there_and_back(source.PATCHES, text, source.text())

    def there_and_back(self, patches, text, before):
        self.assertEqual(real.blob_id(before), text["pre"])
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, text["path"])
            file.parent.mkdir(parents=True)
            file.write_bytes(before)
            real.git("apply", "--whitespace=nowarn", str(patches / text["patch"]), cwd=folder)
            after = file.read_bytes()
            self.assertEqual(real.blob_id(after), text["post"])
            # A .pyc is taken by time and size of its source: an equal size could keep the old code running.
            self.assertNotEqual(len(before), len(after))
            real.git("apply", "-R", "--whitespace=nowarn", str(patches / text["patch"]), cwd=folder)
            self.assertEqual(file.read_bytes(), before)

    def test_every_text_of_the_kernel_gets_the_same_lines(self):
        """Of the texts that no test can have: what is inserted is what the stand-in gets, and that is compiled."""

        def inserted(folder, text):
            lines = (folder / text["patch"]).read_text().splitlines()[4:]
            return [re.sub(r"\s*\\$", "", line[1:]).strip() for line in lines if line.startswith("+")]

        for text in KERNEL["texts"]:
            self.assertEqual(inserted(real.PATCHES, text), inserted(source.PATCHES, STANDIN["texts"][0]))

    def test_the_linter_sees(self):
        good = (real.PATCHES / real.SET["texts"][0]["patch"]).read_bytes()
        self.assertEqual(problems(good), [])
        name = real.SET["texts"][0]["path"].encode()
        ids = re.search(rb"index (\w+)\.\.(\w+)", good)
        for what, bad in {
            "nothing": b"",
            "CRLF": good.replace(b"\n", b"\r\n"),
            "no last newline": good[:-1],
            "short ids": good.replace(ids[1], ids[1][:10]),
            "a mode": good.replace(b" 100644", b" 100755"),
            "a mode change": good.replace(b"\nindex", b"\nold mode 100644\nnew mode 100755\nindex"),
            "a rename": good.replace(b"\nindex", b"\nrename from a\nrename to b\nindex"),
            "a new file": good.replace(b"--- a/" + name, b"--- /dev/null"),
            "a deletion": good.replace(b"+++ b/" + name, b"+++ /dev/null"),
            "another file": good.replace(name, b"sglang/__init__.py"),
            "a path upwards": good.replace(name, b"../" + name),
            "two files": good + good,
            "a removed line": re.sub(rb"\n ", b"\n-", good, count=1),
            "too much context": good + b" one\n two\n",
            "upstream's names": good.replace(b" @@\n", b" @@ class CustomAllreduce:\n", 1),
            "no hunk": good[: good.index(b"@@")],
        }.items():
            with self.subTest(what):
                self.assertNotEqual(problems(bad), [])


class Manifest(unittest.TestCase):
    def test_no_orphans(self):
        for patches in (real.PATCHES, source.PATCHES):
            texts = [text for folder, text in ALL if folder == patches]
            named = {entry["patch"] for text in texts for entry in (text, *text.get("old", ()))}
            there = {str(file.relative_to(patches)) for file in patches.rglob("*") if file.is_file()}
            self.assertEqual(there, named | {"manifest.json"})
        self.assertEqual(len(real.TEXTS), len(real.SET["texts"]), "a text twice")
        self.assertEqual(len(real.RELEASES), len(real.SET["releases"]), "a release twice")
        used = {item for version in real.PATCHED for item in real.RELEASES[version]["files"].items()}
        self.assertEqual(used, set(real.TEXTS))
        for kernel in (KERNEL, STANDIN):
            used = {item for release in kernel["releases"] for item in release["files"].items()}
            self.assertEqual(used, {(text["path"], text["pre"]) for text in kernel["texts"]})
            self.assertEqual(kernel["base"], "checkout")

    def test_the_texts_of_the_kernel(self):
        """Four of them, the last in two places; 72 release tags have one, and each has one."""
        texts = sorted((text["pre"][:8], text["path"]) for text in KERNEL["texts"])
        old = ("18468df1", "4a2d62b2", "e9b32bc6", "ec223bde")
        self.assertEqual(texts, sorted([(pre, source.OLD) for pre in old] + [("e9b32bc6", source.NEW)]))
        self.assertEqual(len(KERNEL["releases"]), 72)
        self.assertEqual({len(release["files"]) for release in KERNEL["releases"]}, {1})
        posts = {text["pre"]: text["post"] for text in KERNEL["texts"]}
        self.assertEqual({text["post"] for text in KERNEL["texts"]}, set(posts.values()))

    def test_every_released_wheel_is_known(self):
        self.assertEqual((real.REFUSED[0], real.REFUSED[-1], len(real.REFUSED)), ("0.4.0", "0.4.1.post6", 10))
        self.assertEqual(real.PATCHED[0], "0.4.1.post7")
        self.assertGreaterEqual(len(real.PATCHED), 82)
        for version in real.REFUSED:
            self.assertIn("vLLM", real.RELEASES[version]["refuse"])

    def test_bytes_tell_releases_apart(self):
        """Two releases have the same files to patch, or differ in one that both have: never is one part of another."""
        releases = list(real.RELEASES.values())
        for one in releases:
            for other in releases:
                a, b = one["files"], other["files"]
                apart = any(a[path] != b[path] for path in a.keys() & b.keys())
                self.assertTrue(apart or a == b, (one["version"], other["version"]))
                self.assertTrue(apart or ("refuse" in one) == ("refuse" in other))

    def test_canonical(self):
        for patches in (real.PATCHES, source.PATCHES):
            text = (patches / "manifest.json").read_text()
            self.assertEqual(text, real.TOOL.dump(json.loads(text)))
            for content in json.loads(text)["sets"].values():
                versions = [release["version"] for release in content["releases"]]
                self.assertEqual(versions, sorted(versions, key=real.TOOL.order))
        for _, text in ALL:
            self.assertNotEqual(text["pre"], text["post"])


if __name__ == "__main__":
    unittest.main()
