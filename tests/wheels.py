"""Released wheels and source packages for tests, downloaded once: wheel(version), sdist(package, version, sha256) -> path.

They are kept in $SGL_PCIE_WHEELS, else ${XDG_CACHE_HOME:-~/.cache}/sgl-pcie/wheels.
"""

import atexit
import concurrent.futures
import functools
import hashlib
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


# pip will have a source package's name and version from its build backend, for which vLLM's would first install torch.
BACKEND = """
import os
def get_requires_for_build_wheel(settings=None):
    return []
def prepare_metadata_for_build_wheel(folder, settings=None):
    name, version = os.environ["SDIST"].split("==")
    info = f"{name}-{version}.dist-info"
    os.mkdir(os.path.join(folder, info))
    with open(os.path.join(folder, info, "METADATA"), "w") as out:
        out.write(f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    return info
"""


def sdist(package, version, sha256):
    """Path of the source package of a release, of these bytes; downloads it when it is missing."""
    file = cache() / f"{package}-{version}.tar.gz"
    if not file.exists():
        cache().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache()) as scratch:
            backend = pathlib.Path(scratch, "backend", "setuptools")
            backend.mkdir(parents=True)
            (backend / "__init__.py").write_text("")
            (backend / "build_meta.py").write_text(BACKEND)
            command = [*_pip(), "download", "--quiet", "--no-deps", "--no-binary=:all:", "--no-build-isolation"]
            environment = dict(os.environ, PYTHONPATH=str(backend.parent), SDIST=f"{package}=={version}")
            subprocess.run([*command, "--dest", scratch, f"{package}=={version}"], check=True, env=environment)
            (pathlib.Path(scratch) / file.name).replace(file)
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != sha256:
        raise RuntimeError(f"{file} has sha256 {found}, not {sha256}")
    return file


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
