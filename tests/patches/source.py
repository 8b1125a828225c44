"""A source checkout of SGLang for tests: a git repository with the text of a kernel, in either layout.

No registry has SGLang's repository, so the text is the nearest one that a released source package carries: that of
vLLM, which SGLang's is derived from, put where SGLang has its own. vllm/ holds the patch set that scripts/patch-kernel.py
makes of it; there 0.8.2 means the older place, 0.8.2.post1 the newer one.
"""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import real

HERE = Path(__file__).resolve().parent
PATCHES = HERE / "vllm"
FILE = "csrc/allreduce/custom_all_reduce.cuh"
OLD, NEW = "sgl-kernel/" + FILE, "python/sglang/kernels/aot/" + FILE
PRE = "b9df4ed160b0344853d681ce0a6e7d4a49ba0281"
SDIST = "vllm", "0.8.2", "9b337b1c4072ccb94b1bf2b716593fadbe2dcb8d091f9bcbd6b5c6d37f9842ac"


def text():
    """The released bytes."""
    with tarfile.open(real.wheels.sdist(*SDIST)) as archive:
        data = archive.extractfile("vllm-0.8.2/csrc/custom_all_reduce.cuh").read()
    if real.blob_id(data) != PRE:
        raise RuntimeError("not the text that the tests know")
    return data


def data(folder):
    """A data folder of the program in which the set sgl-kernel is that of vllm/; the rest is as it is."""
    own = Path(real.CLI).resolve().parent.parent / "share" / "sgl-pcie"
    patches = Path(folder) / "patches"
    patches.mkdir(parents=True)
    for name in os.listdir(own):
        if name != "patches":
            (Path(folder) / name).symlink_to(own / name)
    kernel = real.json.loads((PATCHES / "manifest.json").read_text())["sets"]["sgl-kernel"]
    sets = {**real.MANIFEST["sets"], "sgl-kernel": kernel}
    (patches / "manifest.json").write_text(real.TOOL.dump({**real.MANIFEST, "sets": sets}))
    (patches / "sglang").symlink_to(real.PATCHES / "sglang")
    (patches / "sgl-kernel").symlink_to(PATCHES / "sgl-kernel")
    return Path(folder)


def git(checkout, *args):
    """git without anybody's configuration; its standard output."""
    env = dict(os.environ, GIT_CONFIG_NOSYSTEM="1", HOME="/nonexistent", GIT_OPTIONAL_LOCKS="0")
    for role in ("AUTHOR", "COMMITTER"):
        env.update({f"GIT_{role}_NAME": "t", f"GIT_{role}_EMAIL": "t@t", f"GIT_{role}_DATE": "2026-01-01T00:00:00Z"})
    done = subprocess.run(["git", "-C", str(checkout), *args], env=env, check=True, capture_output=True, text=True)
    return done.stdout


def make(checkout, path=OLD, repository=True):
    """The newest release's sglang/ below python/, and the text at path, committed."""
    checkout = Path(checkout)
    (checkout / "python").mkdir(parents=True, exist_ok=True)
    real.site(real.NEWEST, checkout / "python")
    for info in (checkout / "python").glob("*.dist-info"):
        shutil.rmtree(info)
    (checkout / path).parent.mkdir(parents=True)
    (checkout / path).write_bytes(text())
    if repository:
        git(checkout, "init", "-q")
        commit(checkout)
    return checkout


def commit(checkout):
    git(checkout, "add", "-A")
    git(checkout, "commit", "-q", "-m", "x")


if __name__ == "__main__":
    print(real.wheels.sdist(*SDIST) if len(sys.argv) < 2 else make(sys.argv[1], *sys.argv[2:]))
