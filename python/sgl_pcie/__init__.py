"""What the patched lines of SGLang call.

Three hooks, each a no-op unless the flag asks for something: gate() at the NVLink test, hand_out_class() and
hand_out() where SGLang hands out its custom all-reduce. None takes a server down, and unless the flag asks nothing
but sgl_pcie.flag is imported. A rank that was asked and has a doubt of its own still goes where its group's ranks
settle, since the others may have none and would wait. The patched lines survive without this package, too.
"""

import os
import sys

from .flag import COMMUNICATOR, STOCK, UPSTREAM, decision, log


def gate(full_nvlink, devices, cls_name="CustomAllreduce"):
    """The result of SGLang's NVLink test, made true where its own kernel (V1) is wanted on PCIe.

    devices: NVML indices of the group's GPUs. V2, the JIT kernel, stays closed: it needs remote atomics.
    """
    if cls_name != "CustomAllreduce" or decision().action != UPSTREAM or not _on_cuda():
        return full_nvlink
    rebuilt = _rebuilt()
    if full_nvlink and rebuilt is None:
        return full_nvlink
    if decision().verdict is not None and not _proved(devices):
        if rebuilt is not None:
            rebuilt.refuse()
        log.warning("the verdict has no PASS for SGLang's own custom all-reduce on GPUs %s: stock", list(devices))
        return full_nvlink
    if rebuilt is not None and not rebuilt.admit(full_nvlink):
        if not full_nvlink:
            log.warning("the rebuilt kernel does not serve the group on GPUs %s: stock", list(devices))
        return full_nvlink
    if not full_nvlink:
        log.info("SGLang's own custom all-reduce is allowed on PCIe-only GPUs %s", list(devices))
    return True


def hand_out_class(stock):
    """To 0.5.5.post2 SGLang calls the class CustomAllreduce itself: let the call give our object instead.

    The name stays a class, since SGLang sets attributes on it. A foreign object from __new__ skips __init__.
    """
    if decision().asked == STOCK or (decision().asked == UPSTREAM and _rebuilt() is None):
        return

    def new(cls, group=None, device=None, *args, **kwargs):
        comm = None
        if cls is stock and group is not None:
            _prepare(group, stock)
            comm = _communicator(group, device, lambda: _instance(stock, group, device))
        return object.__new__(cls) if comm is None else comm

    stock.__new__ = staticmethod(new)


def hand_out(stock, legacy):
    """From 0.5.5.post3 on SGLang asks dispatch_custom_allreduce for the class and calls that: answer first.

    stock: that function. legacy: the class CustomAllreduce (V1). Returns the function to use instead.
    """
    if decision().asked == STOCK:
        return stock

    def dispatch(group, device):
        _prepare(group, legacy)
        comm = _communicator(group, device, lambda: stock(group=group, device=device)(group=group, device=device))
        return stock(group=group, device=device) if comm is None else lambda **_: comm

    def build(group, device):
        _prepare(group, legacy)
        comm = _communicator(group, device, lambda: stock()(group=group, device=device))
        if comm is None:
            comm = stock()(group=group, device=device)
        if decision().action == UPSTREAM and comm.disabled and type(comm) is not legacy:
            comm = legacy(group=group, device=device)  # V2 declined; from 0.5.13 on SGLang itself takes V1 then
        return comm

    # To 0.5.12.post1 the dispatcher is not told the group, so the answer waits for the call that names it.
    return dispatch if stock.__code__.co_argcount else lambda: build


def _communicator(group, device, make_stock):
    """Our communicator for this group, or None: whatever SGLang would have chosen, which make_stock() makes."""
    if decision().asked != COMMUNICATOR or not _on_cuda():
        return None
    try:
        from .communicator import create

        return create(group, device, make_stock)
    except Exception:
        log.exception("cannot set up the PCIe all-reduce: stock")
        return None


def _rebuilt():
    """The module upstream where SGLang's own kernel was rebuilt into this install, else None: the kernel package's."""
    if not os.path.exists(os.path.join(os.path.dirname(os.path.abspath(__file__)), "libupstream.so")):
        return None
    from . import upstream

    return upstream


def _prepare(group, legacy):
    """Shall the communicator that SGLang now builds for this group run on the rebuilt kernel?"""
    if decision().asked != UPSTREAM or not _on_cuda():
        return
    try:
        rebuilt = _rebuilt()
        if rebuilt is not None:
            rebuilt.prepare(group, sys.modules[legacy.__module__])
    except Exception:
        log.exception("cannot set up the rebuilt kernel of SGLang's own all-reduce: stock")


def _instance(stock, group, device):
    """SGLang's own object, past the __new__ that hands out ours."""
    own = object.__new__(stock)
    own.__init__(group, device)
    return own


def _proved(devices):
    from .machine import gpus

    uuids = dict(enumerate(uuid for _, uuid in gpus()))
    return decision().verdict.covers("upstream", [uuids.get(index) for index in devices])


def _on_cuda():
    import torch  # SGLang has it loaded by now

    return torch.version.cuda is not None
