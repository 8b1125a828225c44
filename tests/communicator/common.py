"""Where things are, and packages put together for a test."""

import os
import pathlib
import shutil
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAKE = pathlib.Path(os.environ.get("SP_FAKE_SITE", ROOT / "out/tests/communicator/fake"))
REAL = os.environ.get("SP_REAL_SITE")

sys.dont_write_bytecode = True


def package(folder, library=True, module=True):
    """A site in `folder` whose sgl_pcie is complete but for what the caller leaves out; real files, no links."""
    target = pathlib.Path(folder) / "sgl_pcie"
    target.mkdir()
    for path in (ROOT / "python" / "sgl_pcie").glob("*.py"):
        shutil.copy(path, target)
    for name, wanted in (("libpar.so", library), ("_sgl_pcie.abi3.so", module)):
        if wanted:
            shutil.copy(FAKE / "sgl_pcie" / name, target)
    return target


class Scratch:
    """Mixin: self.scratch is a folder that goes with the test."""

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.scratch = pathlib.Path(folder.name)
