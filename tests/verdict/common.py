"""A patched install with stand-ins for what `build` makes, GPUs that a stand-in for NVML names, verdicts and profiles."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests" / "patches"), str(ROOT / "tests" / "cli"), str(ROOT / "python")]
sys.dont_write_bytecode = True

import real  # noqa: E402
import schema  # noqa: E402
from sgl_pcie import machine, state  # noqa: E402

BOUND = os.environ["VERDICT_BOUND"]
FAKE_NVML = os.environ["FAKE_NVML"]  # the folder
GPUS = ["GPU-11111111-0000-0000-0000-000000000000", "GPU-22222222-0000-0000-0000-000000000000"]
FLAG = "SGLANG_FORCE_CUSTOM_AR_PCIE"


def verdict(bound, level=3, result="PASS"):
    gpus = [bound[key] for key in sorted(bound) if key.startswith("gpu ")]
    return {
        "schema": "sgl-pcie-verdict/1",
        "level": level,
        "bound": bound,
        "results": [{"backend": "host", "world": len(gpus), "gpus": gpus, "result": result}],
        "pairs": [{"backend": "host", "gpus": gpus, "failed": []}],
    }


def profile(bound, us=6.0):
    gpus = [bound[key] for key in sorted(bound) if key.startswith("gpu ")]
    entry = {"max_bytes": 65536, "algorithm": "host-one-shot", "us": us, "stock_us": 15.0}
    return {
        "schema": "sgl-pcie-profile/1",
        "bound": bound,
        "tables": [{"world": len(gpus), "gpus": gpus, "entries": [entry]}],
    }


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir="/tmp")
        self.addCleanup(folder.cleanup)
        self.scratch = pathlib.Path(folder.name).resolve()
        os.chmod(self.scratch, 0o755)
        self.state = self.scratch / "state"
        self.environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.scratch),
            "LC_ALL": "C",
            "SGL_PCIE_STATE": str(self.state),
            "LD_LIBRARY_PATH": FAKE_NVML,
            "FAKE_GPUS": ",".join(GPUS),
        }

    def install(self, name):
        """A patched and "built" site."""
        site = self.scratch / name
        real.site("0.5.23", site)
        self.cli("apply", "--site", site)
        for product in ("libpar.so", "_sgl_pcie.abi3.so", "sgl-pcie-gpu"):
            (site / "sgl_pcie" / product).write_text(product)
        return site

    def run_in(self, command, **environment):
        return subprocess.run(
            [str(word) for word in command],
            env={**self.environment, **environment},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def cli(self, *words, expect=0, **environment):
        done = self.run_in([real.CLI, *words], **environment)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        if "--json" in words:
            schema.validate(json.loads(done.stdout))
        return done.stdout + done.stderr

    def bound(self, site, **environment):
        done = self.run_in([BOUND, site, ""], **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def write(self, site, name, content):
        """As verify and bench write."""
        file = self.scratch / "content.json"
        file.write_text(json.dumps(content))
        done = self.run_in([BOUND, "write", name, file, site])
        self.assertEqual(done.returncode, 0, done.stderr)
        return pathlib.Path(done.stdout.strip())

    def shown(self, site, **environment):
        done = self.run_in([BOUND, "show", site], **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def python(self, site, code, **environment):
        code = "import sys; sys.dont_write_bytecode = True; sys.path.insert(0, %r); %s" % (str(site), code)
        done = self.run_in([sys.executable, "-c", code], **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def loaded(self, site, **environment):
        """What SGLang would make of the verdict: "level", or why not."""
        code = "from sgl_pcie import verdict; v, why = verdict.load(); print(v.level if v else why)"
        return self.python(site, code, **environment)


def tree(site):
    """Every entry of an install with its bytes, mode and owner."""
    found = {}
    for path in sorted(pathlib.Path(site).rglob("*")):
        st = path.lstat()
        found[str(path.relative_to(site))] = (st.st_mode, st.st_uid, path.read_bytes() if path.is_file() else None)
    return found


__all__ = ["Case", "FLAG", "GPUS", "machine", "profile", "real", "schema", "shutil", "state", "tree", "verdict"]
