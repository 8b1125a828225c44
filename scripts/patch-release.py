#!/usr/bin/env python3
"""Make the patch set `sglang`: patches/manifest.json and the patch files, from released SGLang wheels.

    patch-release.py VERSION|WHEEL...   add releases; where an anchor moved, say which, and write nothing
    patch-release.py --all              make everything again from the wheels of every known release
    patch-release.py --check            the same in memory: is what is committed what this script makes?

This script is the source of the patches: what is inserted and where is in ERAS below, and nowhere else. A line
goes where its anchor matches exactly once; everything else about a release's text is left alone. Wheels come
from $SGL_PCIE_WHEELS (default ~/.cache/sgl-pcie/wheels); what is missing there is downloaded by pip.

To change an inserted line, raise REVISION and run --all: the present patches become the earlier revision
that `sgl-pcie apply` upgrades from, and stay in patches/sglang/r<revision>/.
"""

import argparse
import difflib
import hashlib
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

REVISION = 1
SUMMARY = "let SGLang ask sgl_pcie at its NVLink test and where it hands out its custom all-reduce"

# ---------------------------------------------------------------------------------------------------------------
# What is inserted, and where


class Edit(NamedTuple):
    name: str
    anchor: str  # matches one line of the text and only one, but for its indentation; or END
    sample: str  # how that line looked, to find where it went
    lines: str  # inserted after it, indented as it is
    needs: tuple  # lines that must be there, too, for the inserted ones to mean what they should


END = ""

COMMUNICATORS = "sglang/srt/distributed/device_communicators/"
CAR = COMMUNICATORS + "custom_all_reduce.py"
UTILS = COMMUNICATORS + "custom_all_reduce_utils.py"
V2 = COMMUNICATORS + "custom_all_reduce_v2.py"
STATE = "sglang/srt/distributed/parallel_state.py"

LOGGER = r"logger = logging\.getLogger\(__name__\)"
CLASS = r"class CustomAllreduce:"

# What goes wrong inside sgl_pcie is dealt with there; here it may have been uninstalled, or damaged.
GUARDED = """\
try:
    from sgl_pcie import %s
    %s
except ImportError:  # uninstalled: stock
    pass
except Exception as e:
    logger.warning("sgl-pcie: %%r", e)
"""

GATE = Edit(
    "gate",
    r"full_nvlink = is_full_nvlink\(physical_device_ids(, world_size)?\)",
    "full_nvlink = is_full_nvlink(physical_device_ids, world_size)",
    GUARDED % ("gate", "full_nvlink = gate(full_nvlink, physical_device_ids)"),
    (LOGGER, r"if world_size > 2 and not full_nvlink:", r"self\.full_nvlink = full_nvlink"),
)
GATE_OF_BOTH = Edit(  # V1 and V2 share the test
    "gate",
    r"full_nvlink = is_full_nvlink\(physical_device_ids, world_size\)",
    "full_nvlink = is_full_nvlink(physical_device_ids, world_size)",
    GUARDED % ("gate", "full_nvlink = gate(full_nvlink, physical_device_ids, cls_name)"),
    (LOGGER, r"cls_name: str,", r"if world_size > 2 and not full_nvlink:", r"return full_nvlink"),
)
HAND_OUT_CLASS = Edit(
    "hand-out",
    END,
    "",
    "\n\n" + GUARDED % ("hand_out_class", "hand_out_class(CustomAllreduce)"),
    (LOGGER, CLASS),
)
DISPATCH = "dispatch_custom_allreduce = hand_out(dispatch_custom_allreduce, CustomAllreduce)"
HAND_OUT = Edit(
    "hand-out",
    END,
    "",
    "\n\n" + GUARDED % ("hand_out", DISPATCH),
    (LOGGER, CLASS, r"def dispatch_custom_allreduce\((\):)?"),
)

# What the hooks rely on elsewhere: how a group gets its communicator, and who asks the shared test.
CALLS_CLASS = r"self\.ca_comm = CustomAllreduce\("
CALLS_CHOSEN = r"CAClass = dispatch_custom_allreduce\(\)?"
ASKS_V1, ASKS_V2 = (r'cls_name="%s",' % name for name in ("CustomAllreduce", "CustomAllReduceV2"))

# The first release of each era; for each file the edits, and lines that must be there though nothing is inserted at
# them. A release after the last one known belongs to the last era.
ERAS = (
    (
        "0.4.0",
        "the all-reduce of this release is vLLM's: SGLang imports vllm.distributed and never runs its own copy",
    ),
    ("0.4.1.post7", {CAR: (GATE,), STATE: (CALLS_CLASS,)}),
    ("0.4.4.post4", {CAR: (GATE, HAND_OUT_CLASS), STATE: (CALLS_CLASS,)}),
    ("0.5.5.post3", {CAR: (GATE, HAND_OUT), STATE: (CALLS_CHOSEN,)}),
    ("0.5.10", {CAR: (HAND_OUT, ASKS_V1), UTILS: (GATE_OF_BOTH,), V2: (ASKS_V2,), STATE: (CALLS_CHOSEN,)}),
)

# ---------------------------------------------------------------------------------------------------------------
# One text: its post-image and its patch


class Moved(Exception):
    """An anchor does not match as it should; the message says which, where, and what is near."""


def blob_id(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def matches(lines, pattern):
    return [number for number, line in enumerate(lines) if re.fullmatch(r"\s*" + pattern, line)]


def require(lines, pattern, what):
    if not matches(lines, pattern):
        raise Moved("  %s needs a line '%s'%s" % (what, pattern, nearest(lines, pattern.replace("\\", ""))))


def place(lines, edit):
    """How many lines come before the edit's; Moved when something that it needs is not as it should be."""
    for need in edit.needs:
        require(lines, need, edit.name)
    if edit.anchor == END:
        return len(lines)
    hits = matches(lines, edit.anchor)
    if len(hits) != 1:
        found = "lines " + ", ".join(str(hit + 1) for hit in hits) if hits else "none" + nearest(lines, edit.sample)
        raise Moved("  %s: one line should match '%s': %s" % (edit.name, edit.anchor, found))
    return hits[0] + 1


def nearest(lines, sample):
    bare = [line.strip() for line in lines]
    near = difflib.get_close_matches(sample, bare, 3, 0.4)
    return "".join("\n    near is line %d: %s" % (bare.index(line) + 1, line) for line in near)


def insertions(data, edits):
    """[(number of lines before, [inserted lines])], in order."""
    lines = data.decode().split("\n")
    if b"\r" in data or lines.pop() != "":
        raise Moved("  not a text of LF lines, each of them ended")
    result, moved = [], []
    for edit in edits:
        try:
            if isinstance(edit, str):
                require(lines, edit, "the hook")
                continue
            at = place(lines, edit)
        except Moved as problem:
            moved.append(str(problem))
            continue
        indent = "" if edit.anchor == END else re.match(r"\s*", lines[at - 1]).group()
        result.append((at, [indent + line if line else "" for line in edit.lines.splitlines()]))
    if moved:
        raise Moved("\n".join(moved))
    return sorted(result)


def extent(start, count):
    return "%d" % start if count == 1 else "%d,%d" % (start, count)


def make_patch(path, data, inserted):
    """(post-image, patch) as `git diff --full-index --no-renames -U1` would write it, less upstream's names."""
    lines = data.decode().split("\n")[:-1]
    post, hunks, done = [], [], 0
    for at, new in inserted:
        before, after = lines[at - 1 : at], lines[at : at + 1]
        old, now = len(before + after), len(before + new + after)
        hunk = ["@@ -%s +%s @@" % (extent(at, old), extent(at + len(post) - done, now))]
        hunk += [" " + line for line in before] + ["+" + line for line in new] + [" " + line for line in after]
        hunks.append("".join(line + "\n" for line in hunk))
        post += lines[done:at] + new
        done = at
    post = "".join(line + "\n" for line in post + lines[done:]).encode()
    head = "diff --git a/%s b/%s\nindex %s..%s 100644\n--- a/%s\n+++ b/%s\n"
    return post, (head % (path, path, blob_id(data), blob_id(post), path, path) + "".join(hunks)).encode()


# ---------------------------------------------------------------------------------------------------------------
# Releases, and the wheels they come from


def order(version):
    """Sorts as PEP 440 does, for what SGLang releases: 0.5.4, 0.5.4.post1, 0.5.10."""
    match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(?:rc(\d+)|\.post(\d+))?", version)
    if not match:
        sys.exit("not a version that SGLang would release: '%s'" % version)
    major, minor, patch, rc, post = match.groups()
    return int(major), int(minor), int(patch), -1 if rc else 0, int(rc or post or 0)


def era(version):
    """{path: edits} of this release, or the reason why it is not patched."""
    known = [what for first, what in ERAS if order(first) <= order(version)]
    return known[-1] if known else sys.exit("%s is older than all that is known" % version)


def wheel_of(name):
    """(version, path of the wheel) for a version or a wheel's path."""
    match = re.match(r"sglang-([^-]+)-.*\.whl$", Path(name).name)
    if match:
        return match.group(1), Path(name)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("SGL_PCIE_WHEELS") or Path(cache) / "sgl-pcie" / "wheels")
    if not list(folder.glob("sglang-%s-*.whl" % name)):
        folder.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
        pip += ["--only-binary=:all:", "--python-version", "3.11", "--implementation", "cp"]
        pip += ["--platform", "manylinux_2_34_x86_64", "--platform", "any", "sglang==" + name]
        if subprocess.run(pip, check=False).returncode != 0:
            sys.exit("pip has no wheel of sglang %s: name a version, or the path of a wheel" % name)
    return name, next(folder.glob("sglang-%s-*.whl" % name))


# ---------------------------------------------------------------------------------------------------------------
# The patch set: what it knows, and the files that say so


class Text(NamedTuple):
    names: tuple  # of its edits
    post: str
    patch: bytes
    old: tuple = ()  # manifest entries of earlier revisions


class PatchSet:
    name, summary = "sglang", SUMMARY
    base = {}  # what the manifest says of the folder that the set's paths are in; nothing: the one with sglang/

    def __init__(self, folder, revision=None):
        """What patches/manifest.json and its files say; empty where there is none."""
        self.folder = folder
        self.revision = revision or REVISION
        self.texts = {}  # (path, pre) -> Text
        self.releases = {}  # version -> {path: pre}
        self.kept = {}  # patch files of earlier revisions: name -> bytes
        self.manifest = {"schema": "sgl-pcie-patches/1", "sets": {}}
        if (folder / "manifest.json").exists():
            self.manifest = json.loads((folder / "manifest.json").read_text())
        here = self.manifest["sets"].get(self.name, {"revision": self.revision, "texts": [], "releases": []})
        self.revision = here["revision"]
        for entry in here["texts"]:
            names = tuple(re.match(r"\d+-(.*)\.patch", Path(entry["patch"]).name).group(1).split("-and-"))
            patch = (folder / entry["patch"]).read_bytes()
            old = tuple(entry.get("old", ()))
            self.texts[entry["path"], entry["pre"]] = Text(names, entry["post"], patch, old)
            self.kept.update({item["patch"]: (folder / item["patch"]).read_bytes() for item in old})
        for entry in here["releases"]:
            self.releases[entry["version"]] = entry["files"]

    def add(self, version, wheel):
        """Learn one release; Moved when its texts are not what the edits expect."""
        edits = era(version)
        refused = isinstance(edits, str)
        files, moved = {}, []
        with zipfile.ZipFile(wheel) as archive:
            for path in (CAR, UTILS) if refused else edits:
                if path not in archive.namelist():
                    near = ["\n    near is " + name for name in archive.namelist() if Path(name).name == Path(path).name]
                    moved.append("%s (release %s)\n  there is no such file%s" % (path, version, "".join(near)))
                    continue
                data = archive.read(path)
                key = path, blob_id(data)
                names = () if refused else tuple(edit.name for edit in edits[path] if isinstance(edit, Edit))
                if names or refused:
                    files[path] = key[1]
                if refused or key in self.texts:
                    continue
                try:
                    post, patch = make_patch(path, data, insertions(data, edits[path]))
                except Moved as problem:
                    moved.append("%s (release %s)\n%s" % (path, version, problem))
                    continue
                if names:
                    self.texts[key] = Text(names, blob_id(post), patch)
        if moved:
            raise Moved("\n".join(moved))
        self.releases[version] = files

    @staticmethod
    def refusal(version):
        """Why this release is not patched, or None."""
        edits = era(version)
        return edits if isinstance(edits, str) else None

    def anew(self, revision):
        """An empty set for the same folder."""
        new = type(self).__new__(type(self))
        new.folder, new.manifest, new.kept = self.folder, self.manifest, dict(self.kept)
        new.texts, new.releases, new.revision = {}, {}, revision
        return new

    def adopt_old(self, before):
        """Make what `before` had for a text, and this set has no longer, an earlier revision of it."""
        for key, text in self.texts.items():
            was = before.texts.get(key)
            if was is None:
                continue
            old = was.old
            if was.post != text.post:
                if before.revision == self.revision:
                    sys.exit(
                        "the inserted lines have changed: raise REVISION, or remove patches/ if none was released"
                    )
                name = "%s/r%d/%s" % (self.name, before.revision, before.layout()[key].split("/", 1)[1])
                self.kept[name] = was.patch
                sha256 = hashlib.sha256(was.patch).hexdigest()
                old += ({"revision": before.revision, "post": was.post, "patch": name, "sha256": sha256},)
            self.texts[key] = text._replace(old=old)

    def layout(self):
        """{(path, pre): name of the patch file}: <set>/<first>-<last release>/<number>-<edits>.patch"""
        spans = {}
        for version in sorted(self.releases, key=order):
            for key in self.releases[version].items():
                spans.setdefault(key, []).append(version)
        folders, names = {}, {}
        for key in sorted(self.texts):
            first, last = spans[key][0], spans[key][-1]
            folder = first if first == last else "%s-%s" % (first, last)
            folders.setdefault(folder, []).append(key)
        for folder, keys in folders.items():
            for number, key in enumerate(keys, 1):
                names[key] = "%s/%s/%04d-%s.patch" % (self.name, folder, number, "-and-".join(self.texts[key].names))
        return names

    def files(self):
        """{name below patches/: bytes}, the manifest among them."""
        layout = self.layout()
        result = dict(self.kept)
        texts, releases = [], []
        for path, pre in sorted(self.texts, key=lambda key: (key[0], layout[key])):
            text = self.texts[path, pre]
            name = layout[path, pre]
            result[name] = text.patch
            entry = {"path": path, "pre": pre, "post": text.post, "patch": name}
            entry["sha256"] = hashlib.sha256(text.patch).hexdigest()
            texts.append(dict(entry, old=list(text.old)) if text.old else entry)
        for version in sorted(self.releases, key=order):
            entry = {"version": version, "files": self.releases[version]}
            refused = self.refusal(version)
            releases.append(dict(entry, refuse=refused) if refused else entry)
        ours = {"revision": self.revision, "summary": self.summary, "texts": texts, "releases": releases, **self.base}
        manifest = dict(self.manifest, sets={**self.manifest["sets"], self.name: ours})
        result["manifest.json"] = dump(manifest).encode()
        return result

    def on_disk(self):
        """The same as files(), as it is now."""
        present = [self.folder / "manifest.json", *self.folder.glob(self.name + "/**/*.patch")]
        return {str(file.relative_to(self.folder)): file.read_bytes() for file in present if file.exists()}

    def write(self):
        """Make the folder say what files() says; only what differs is touched."""
        files, present = self.files(), self.on_disk()
        for name in present.keys() - files.keys():
            (self.folder / name).unlink()
            for parent in (self.folder / name).parents:
                if any(parent.iterdir()):
                    break
                parent.rmdir()
        for name in (name for name, data in files.items() if present.get(name) != data):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(files[name])
        return len(files)


def dump(value, depth=0):
    """JSON with sorted keys, where what has no long parts stays on one line."""
    flat = json.dumps(value, sort_keys=True)
    if depth == 4 or not isinstance(value, (dict, list)) or not value:
        return flat
    open_, close = "{}" if isinstance(value, dict) else "[]"
    parts = value if isinstance(value, list) else sorted(value)
    tag = (lambda part: "") if isinstance(value, list) else (lambda key: json.dumps(key) + ": ")
    get = (lambda part: part) if isinstance(value, list) else value.get
    body = ",\n".join(" " * depth + " " + tag(part) + dump(get(part), depth + 1) for part in parts)
    return open_ + "\n" + body + "\n" + " " * depth + close + ("\n" if depth == 0 else "")


# ---------------------------------------------------------------------------------------------------------------


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("release", nargs="*", help="version, or path of a wheel")
    parser.add_argument("--all", action="store_true", help="make everything again")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if something would change")
    parser.add_argument("--patches", type=Path, default=Path(__file__).resolve().parent.parent / "patches")
    args = parser.parse_args(argv)
    if not (args.release or args.all or args.check):
        parser.error("which release?")

    before = PatchSet(args.patches)
    again = args.all or args.check
    if not again and before.revision != REVISION:
        sys.exit("revision %d in the manifest, %d here: run --all first" % (before.revision, REVISION))
    patches = before.anew(REVISION) if again else before
    wheels = dict(wheel_of(name) for name in args.release)
    if again:
        wheels = {**dict(wheel_of(version) for version in before.releases), **wheels}
    moved = []
    for version in sorted(wheels, key=order):
        try:
            patches.add(version, wheels[version])
        except Moved as problem:
            moved.append(str(problem))
        except (OSError, zipfile.BadZipFile) as problem:
            sys.exit("'%s' cannot be read: %s" % (wheels[version], problem))
    if moved:
        sys.exit("\n".join(moved) + "\nnothing was written")
    if again:
        patches.adopt_old(before)
    finish(patches, args.check)


def finish(patches, check):
    """Write the set, or say what of it would change."""
    if check:
        made, present = patches.files(), patches.on_disk()
        differ = sorted(name for name in made.keys() | present.keys() if made.get(name) != present.get(name))
        sys.exit("\n".join("differs: patches/" + name for name in differ) or 0)
    print("%d releases, %d texts, %d files" % (len(patches.releases), len(patches.texts), patches.write()))


if __name__ == "__main__":
    main()
