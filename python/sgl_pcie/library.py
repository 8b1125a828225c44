"""Loads _sgl_pcie, the module on libpar.so, or says what is missing. build/ puts both beside this file."""

import os
import sys
import sysconfig

HERE = os.path.dirname(os.path.abspath(__file__))
MODULE = "_sgl_pcie.abi3.so"
LIBRARY = "libpar.so"


class Missing(Exception):
    """What is missing, and what to do."""


def built():
    return all(os.path.exists(os.path.join(HERE, name)) for name in (MODULE, LIBRARY))


def load():
    """The module; Missing where it cannot be had."""
    if sys.implementation.name != "cpython" or sys.version_info < (3, 10):
        found = "%s %s" % (sys.implementation.name, sys.version.split()[0])
        raise Missing("CPython 3.10 or newer is needed, this is " + found)
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise Missing("this is a free-threaded Python, which has no stable ABI: use the ordinary build of it")
    if not built():
        raise Missing("%s or %s is not in %s: run `sgl-pcie build`" % (MODULE, LIBRARY, HERE))
    try:
        from . import _sgl_pcie
    except ImportError as error:
        raise Missing("%s: run `sgl-pcie build` again" % error) from error
    return _sgl_pcie
