"""The flag: what was asked for, and what this process does about it.

SGLANG_FORCE_CUSTOM_AR_PCIE, or, where that is not set, what `sgl-pcie enable` wrote into this environment
(.sgl-pcie/flag.json beside this package; patcher/flag.h has the same rules). This is the only place that reads
either. Neither torch nor an extension is imported here: SGLang loads this module with the flag unset, too. What "1"
needs beyond it, the verdict of this machine, is loaded then only.
"""

import functools
import json
import logging
import os
import stat
from typing import NamedTuple, Optional

FLAG = "SGLANG_FORCE_CUSTOM_AR_PCIE"
BACKEND = "SGLANG_PCIE_AR_BACKEND"
BACKENDS = ("auto", "peer", "host", "upstream")

STOCK = "stock"  # whatever SGLang would have chosen
UPSTREAM = "upstream"  # SGLang's own kernel (V1), allowed on PCIe
COMMUNICATOR = "communicator"  # ours

_HERE = os.path.dirname(os.path.abspath(__file__))
_PERSISTED = os.path.join(os.path.dirname(_HERE), ".sgl-pcie", "flag.json")
_PERSISTED_MAX = 4096

log = logging.getLogger("sgl_pcie")


class Flag(NamedTuple):
    value: Optional[str]  # None: unset
    source: str  # "environment", "install" or "unset"


class Decision(NamedTuple):
    action: str
    level: int  # of its line in the log; NOTSET: none
    reason: str = ""
    verdict: Optional[tuple] = None  # verdict.Verdict that stands behind it; None: nothing was proved
    refuses: str = ""  # what was asked for, where a doubt of this process makes it stock: the other ranks may have none

    @property
    def asked(self):
        """What the ranks of a group have to settle about."""
        return self.refuses or self.action


def unique(pairs):
    """The object_pairs_hook of json that refuses what sgl-pcie refuses: which of two values counts, no two readers agree."""
    content = {}
    for key, value in pairs:
        if key in content:
            raise ValueError("duplicate object key near '%s'" % json.dumps(key, ensure_ascii=False))
        content[key] = value
    return content


def read(environ=os.environ, path=_PERSISTED):
    """The flag as this environment has it: the variable wins, also over what was persisted."""
    if FLAG in environ:
        return Flag(environ[FLAG], "environment")
    value = _read_persisted(path)
    return Flag(value, "unset" if value is None else "install")


def decide(value, backend, built, verdict=None, doubt="there is no verdict for this machine"):
    """What to do; depends on nothing else.

    built: is there a communicator in this install? verdict: this machine's fresh one, or None, and doubt says why.
    """
    if value is None or value == "0":
        return Decision(STOCK, logging.NOTSET)
    if value not in ("1", "unsafe"):
        return Decision(STOCK, logging.WARNING, "%s=%r is none of 0, 1, unsafe" % (FLAG, value))
    if backend not in BACKENDS:
        return Decision(STOCK, logging.WARNING, "%s=%r is none of %s" % (BACKEND, backend, ", ".join(BACKENDS)))
    asked = UPSTREAM if backend == "upstream" else COMMUNICATOR if built else STOCK
    if value == "unsafe":
        verdict, level, basis = None, logging.WARNING, "%s=unsafe: nothing was proved on this machine" % FLAG
    elif verdict is None:
        return Decision(STOCK, logging.WARNING, doubt, refuses=asked)
    else:
        level, basis = logging.INFO, "a fresh verdict of level %d" % verdict.level
    if asked == STOCK:
        level, basis, verdict = logging.WARNING, "no communicator is built into this install", None
    return Decision(asked, level, basis, verdict)


@functools.lru_cache(maxsize=None)
def decision():
    """The decision of this process: made, and said, once."""
    flag = read()
    backend = os.environ.get(BACKEND, "auto")
    built = all(os.path.exists(os.path.join(_HERE, name)) for name in ("_sgl_pcie.abi3.so", "libpar.so"))
    made = decide(flag.value, backend, built, *(_verdict() if flag.value == "1" else ()))
    if made.level:
        log.log(made.level, "%s all-reduce, by the %s's flag: %s", made.action, flag.source, made.reason)
    return made


def _verdict():
    try:
        from .verdict import load

        return load()
    except Exception as error:
        return None, "the verdict cannot be read: %r" % error


def _read_persisted(path):
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        st = os.fstat(fd)
        if not stat.S_ISREG(st.st_mode) or st.st_uid not in (0, os.geteuid()) or st.st_size > _PERSISTED_MAX:
            return None
        content = json.loads(os.read(fd, _PERSISTED_MAX).decode(), object_pairs_hook=unique)
        value = content["value"] if content["schema"] == "sgl-pcie-flag/1" else None
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    finally:
        os.close(fd)
    return value if isinstance(value, str) and 0 < len(value) < 16 else None
