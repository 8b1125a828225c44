"""Released wheels for tests, downloaded once: wheel(version) -> path.

They are kept in $SGL_PCIE_WHEELS, else ${XDG_CACHE_HOME:-~/.cache}/sgl-pcie/wheels.
"""

import atexit
import concurrent.futures
import functools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile


def cache():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(os.environ.get("SGL_PCIE_WHEELS") or os.path.join(base, "sgl-pcie", "wheels"))


@functools.lru_cache(maxsize=None)
def _pip():
    """This interpreter's pip, or that of a fresh environment: Debian's python3 has none."""
    here = (sys.executable, "-m", "pip")
    if subprocess.run([*here, "--version"], capture_output=True, check=False).returncode == 0:
        return here
    scratch = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", scratch], check=True)
    return (os.path.join(scratch, "bin", "python"), "-m", "pip")


def wheel(version, package="sglang"):
    """Path of the wheel of a release; downloads it when it is missing."""
    folder = cache()
    pattern = f"{package.replace('-', '_')}-{version}-*.whl"
    for path in sorted(folder.glob(pattern)):
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        command = [*_pip(), "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--python-version", "3.11", "--implementation", "cp"]
        command += ["--platform", "manylinux_2_34_x86_64", "--platform", "manylinux2014_x86_64", "--platform", "any"]
        subprocess.run([*command, "--dest", scratch, f"{package}=={version}"], check=True)
        (found,) = pathlib.Path(scratch).glob(pattern)
        return found.replace(folder / found.name)


def fetch(versions):
    """The wheels of many releases, several at a time."""
    missing = [version for version in versions if not list(cache().glob(f"sglang-{version}-*.whl"))]
    if missing:
        _pip()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return list(pool.map(wheel, versions))


def unpack(version, site, only=("sglang/srt/distributed/", "sglang/__init__.py", "sglang/version.py")):
    """Unpack the wanted part of a wheel and its dist-info into the folder site."""
    with zipfile.ZipFile(wheel(version)) as archive:
        prefixes = (*only, f"sglang-{version}.dist-info/")
        archive.extractall(site, [name for name in archive.namelist() if name.startswith(prefixes)])


if __name__ == "__main__":
    print(*fetch(sys.argv[1:]), sep="\n")
