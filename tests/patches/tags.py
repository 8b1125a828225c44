"""Both patch sets on a checkout of every release tag: applied, compared with the manifest, reverted; git sees no change.

    tags.py CLONE     a git repository with SGLang's tags; it is only read, and may be bare

No test run has such a clone: docs/patches.md says when this was run. Exit status 1 if a tag fails.
"""

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

import real
import source

KERNEL = real.MANIFEST["sets"]["sgl-kernel"]
POST = {(text["path"], text["pre"]): text["post"] for text in KERNEL["texts"]}


def digest(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


def blobs(checkout, files):
    return {path: real.blob_id((checkout / path).read_bytes()) for path in files}


def sets_of(version):
    """The sets that know this release: Python's knows what was released as a wheel."""
    known = real.RELEASES.get(version)
    return ("sglang", "sgl-kernel") if known and "refuse" not in known else ("sgl-kernel",)


def expected(version, files):
    """{path below the checkout: blob id} once it is patched."""
    result = {path: POST[path, pre] for path, pre in files.items()}
    if "sglang" in sets_of(version):
        for path, pre in real.RELEASES[version]["files"].items():
            result["python/" + path] = real.TEXTS[path, pre]["post"]
    return result


def check(checkout, version, files):
    """What is wrong, or None."""
    source.git(checkout, "checkout", "-q", "--detach", "v" + version)
    index = checkout / ".git" / "index"
    wanted, words = expected(version, files), [word for name in sets_of(version) for word in ("--set", name)]
    released, before = blobs(checkout, wanted), digest(index)
    for step, want in (("apply", wanted), ("revert", released)):
        code, _, err = real.run(step, "--quiet", "--source", checkout, *(words if step == "apply" else ()))
        if code or blobs(checkout, wanted) != want or digest(index) != before:
            return "%s: exit %d %s" % (step, code, err)
    return source.git(checkout, "status", "--porcelain") or None


def main():
    bad = both = 0
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder, "checkout")
        subprocess.run(["git", "clone", "-q", "--no-checkout", "--shared", sys.argv[1], checkout], check=True)
        folders = sorted({Path(path).parent for path in ("python/" + real.TOOL.CAR, source.OLD, source.NEW)})
        source.git(checkout, "sparse-checkout", "set", "--no-cone", *("/%s/" % name for name in folders))
        for release in KERNEL["releases"]:
            wrong = check(checkout, release["version"], release["files"])
            bad += wrong is not None
            both += len(sets_of(release["version"])) == 2
            if wrong:
                print("v%s: %s" % (release["version"], wrong))
    print("%d tags, %d of them with both sets, %d wrong" % (len(KERNEL["releases"]), both, bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
