"""Real SGLang wheels for the tests: where they are, what the manifest says about them, and trees made of them.

`site()` unpacks of a wheel only what the patches touch and an install is known by: sglang/srt/distributed/,
sglang/__init__.py, sglang/version.py and the dist-info folder. `whole=True` unpacks all of it.

Run as a program it downloads the wheels of every release that the manifest names, and what source.py needs.
"""

import hashlib
import importlib.util
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import wheels  # noqa: E402

PATCHES = ROOT / "patches"
CLI = os.environ.get("SGL_PCIE") or str(ROOT / "out" / "bin" / "sgl-pcie")


def load_tool(name="patch-release"):
    """A fresh copy of scripts/<name>.py as a module."""
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), ROOT / "scripts" / (name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOOL = load_tool()
MANIFEST = json.loads((PATCHES / "manifest.json").read_text())
SET = MANIFEST["sets"]["sglang"]
TEXTS = {(text["path"], text["pre"]): text for text in SET["texts"]}
RELEASES = {release["version"]: release for release in SET["releases"]}
PATCHED = [version for version, release in RELEASES.items() if "refuse" not in release]
REFUSED = [version for version, release in RELEASES.items() if "refuse" in release]
NEWEST = PATCHED[-1]


def one_of_each():
    """The first release of every distinct tuple of texts that the set patches."""
    first = {}
    for version in PATCHED:
        first.setdefault(tuple(sorted(RELEASES[version]["files"].items())), version)
    return list(first.values())


def blob_id(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def pristine(version, path):
    with zipfile.ZipFile(wheels.wheel(version)) as archive:
        return archive.read(path)


def site(version, folder, whole=False):
    """Unpack the release into folder, which then serves as a site-packages; returns it."""
    folder = Path(folder)
    wheels.unpack(version, folder, *([("",)] if whole else []))
    return folder


def patch(folder, version):
    """Apply the committed patches to a tree of site(), by git."""
    for path, pre in RELEASES[version]["files"].items():
        git("apply", "--whitespace=nowarn", str(PATCHES / TEXTS[path, pre]["patch"]), cwd=folder)


def add_package(site):
    """Our Python, as apply adds it."""
    shutil.copytree(ROOT / "python/sgl_pcie", Path(site) / "sgl_pcie", ignore=shutil.ignore_patterns("__pycache__"))


class Scratch(unittest.TestCase):
    """All tests of a class share one folder."""

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)


def snapshot(folder):
    """{path: (mode, blob id; None for a folder)} of everything below, bytecode aside."""
    result = {}
    for file in sorted(Path(folder).rglob("*")):
        if "__pycache__" in file.parts:
            continue
        mode = file.lstat().st_mode
        result[str(file.relative_to(folder))] = (mode, blob_id(file.read_bytes()) if stat.S_ISREG(mode) else None)
    return result


def differences(one, other):
    """Paths that two snapshots do not agree on."""
    return {path for path in one.keys() | other.keys() if one.get(path) != other.get(path)}


def git(*args, cwd, check=True):
    """git without anybody's configuration, on a folder that is no repository."""
    env = dict(
        os.environ, GIT_CONFIG_NOSYSTEM="1", HOME="/nonexistent", GIT_CEILING_DIRECTORIES=str(Path(cwd).parent)
    )
    return subprocess.run(["git", *args], cwd=cwd, env=env, check=check, capture_output=True, text=True)


def run(*args, data=None, env=None):
    """(exit code, standard output, standard error) of the program under test."""
    env = dict(os.environ if env is None else env)
    if data is not None:
        env["SGL_PCIE_DATA"] = str(data)
    done = subprocess.run([CLI, *map(str, args)], env=env, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def ask(*args, **more):
    """(exit code, the JSON object) of the program under test."""
    code, out, err = run(*args, "--json", **more)
    try:
        return code, json.loads(out)
    except ValueError:
        raise AssertionError("exit %d, no JSON object: %r %r" % (code, out, err)) from None


if __name__ == "__main__":
    import source

    print("%s, and %d wheels in %s" % (wheels.sdist(*source.SDIST).name, len(wheels.fetch(RELEASES)), wheels.cache()))
