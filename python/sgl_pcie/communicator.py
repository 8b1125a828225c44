"""The communicator that SGLang's groups get in place of its custom all-reduce.

create() is what the hooks call. It is collective over the group and never raises for a reason that lies with us: either
all ranks return a Communicator, or all return None and SGLang goes on as without us.

SGLang asks should_custom_ar() before every all-reduce, in some releases while Dynamo traces it, and then calls
custom_all_reduce(), which must serve. What is outside the profile's sizes it gets from whatever it would have used:
NCCL, and in groups of two its own custom all-reduce, which this object then holds.
"""

import contextlib
import os
import weakref

import torch
import torch.distributed as dist

from . import choice, library, machine, nvidia, profile, ranks
from .flag import BACKEND, decision, log

TIMEOUT = "SGLANG_PCIE_AR_TIMEOUT_S"
TIMEOUT_DEFAULT = 240.0  # below SGLang's own watchdog of 300

_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
_DTYPE_NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
_AUTO = 0  # algorithm: by the profile


def create(group, device, stock=None):
    """Our communicator for this group, or None: stock, for all of its ranks.

    group: SGLang's CPU group. device: of this rank. stock: makes what SGLang would have used; called, by all ranks, in
    groups of two only.
    """
    world, rank = dist.get_world_size(group=group), dist.get_rank(group=group)
    gpus = sum(name.startswith("gpu ") for name in machine.now())
    if not 2 <= world <= 8 or 0 < gpus < world:
        # Without a word to the other ranks, which see the same: on another node they may not have us at all.
        log.info("stock all-reduce for a group of %d ranks: ours is for 2 to 8 GPUs of one machine", world)
        return None
    setup = _Setup(rank, world, device if isinstance(device, int) else torch.device(device).index, stock)
    try:
        comm = setup.run(ranks.gatherer(group))
    except ranks.Disagreed as reason:
        if rank == 0 and not decision().refuses:  # said once for this process by then
            log.warning("stock all-reduce for this group of %d ranks: %s", world, reason)
        return None
    if rank == 0:
        log.info("%s", setup.described())
    return comm


class _Setup:
    """The steps of create(), each one round of the ranks."""

    def __init__(self, rank, world, index, stock):
        self.rank, self.world, self.index, self.make_stock = rank, world, index, stock
        self.module = self.choice = self.native = self.stock = None
        self.uuids = []
        self.timeout = TIMEOUT_DEFAULT

    def run(self, gather):
        alike = {"machine": "machine", "libpar": "libpar.so"}
        said = _round(gather, self.identify, alike)
        self.uuids = [words["uuid"] for words in said]
        alike = {"profile": "profile", "timeout": TIMEOUT}
        _round(gather, self.choose, alike)
        try:
            said = _round(gather, lambda: self.build(gather), {})
        except ranks.Disagreed:
            if self.native is not None:
                self.native.close()
            raise
        if any(words["stock"] != "yes" for words in said):
            self.stock = None
        return Communicator(self.native, self.choice.entries, self.module.DTYPES, self.index, self.stock)

    def identify(self):
        if decision().refuses:
            raise choice.Refused(decision().reason)
        self.libpar = machine.sha256(os.path.join(library.HERE, library.LIBRARY))
        self.module = library.load()
        return {"machine": _boot_id(), "libpar": self.libpar, "uuid": nvidia.cuda_uuid(self.index)}

    def choose(self):
        if len(set(self.uuids)) != self.world:
            raise choice.Refused("two ranks use the same GPU")
        self.timeout = _timeout()
        backend = os.environ.get(BACKEND, "auto")
        tables, self.unmeasured = profile.load(machine.now())
        nvlink = _nvlink(self.uuids) if backend == "auto" else None
        self.choice = choice.choose(backend, self.uuids, decision().verdict, tables, nvlink)
        return {"profile": profile.digest(self.choice.entries), "timeout": str(self.timeout)}

    def build(self, gather):
        self.transports = sum(
            bit
            for bit, names in ((self.module.WITH_HOST, {"host"}), (self.module.WITH_PEER, {"push", "pull"}))
            if names & self.choice.transports()
        )
        self.sentinel_bytes = profile.sentinel_bytes(self.choice.entries, self.world)
        self.native = self.module.Communicator(
            self.rank,
            self.world,
            self.index,
            gather,
            transports=self.transports,
            sentinel_bytes=self.sentinel_bytes,
            timeout_s=self.timeout,
        )
        self.native.set_profile(profile.for_library(self.choice.entries, self.module.ALGORITHMS))
        return {"stock": "yes" if self.build_stock() else "no"}

    def build_stock(self):
        if self.world != 2 or self.make_stock is None:
            return False
        try:
            self.stock = self.make_stock()
        except Exception as error:  # SGLang catches all here, too, and uses NCCL
            log.warning("SGLang's own custom all-reduce cannot be set up, NCCL stands in for it: %r", error)
        return self.stock is not None and not self.stock.disabled

    def described(self):
        device, host = self.module.memory_bound(self.world, self.transports, self.sentinel_bytes)
        return (
            "PCIe all-reduce for this group of %d ranks: %s %s (%s); other sizes: %s; "
            "at most %d MiB of GPU and %d MiB of host memory a rank; libpar.so %s %.12s"
        ) % (
            self.world,
            " and ".join(sorted(self.choice.transports())),
            ", ".join(_sizes(*window) for window in profile.windows(self.choice.entries)),
            self.choice.basis,
            "SGLang's custom all-reduce" if self.stock is not None else "NCCL",
            device >> 20,
            host >> 20,
            self.module.VERSION,
            self.libpar,
        )


class Communicator:
    """What SGLang sees. It probes for more names with hasattr; those that mean something else stay undefined."""

    def __init__(self, native, entries, dtype_numbers, index, stock):
        self.disabled = False  # SGLang writes both
        self.original_disabled = False
        self._native = native
        self._windows = profile.windows(entries)
        self._numbers = {dtype: dtype_numbers[name] for dtype, name in _DTYPE_NAMES.items()}
        self._index = index
        self._stock = stock
        self._id = _register(self)

    def should_custom_ar(self, inp):
        """Is this one ours? Traced by Dynamo: integers and attributes only."""
        if self.disabled:
            return False
        if inp.dtype in _DTYPES and inp.is_contiguous():
            size = inp.numel() * inp.element_size()
            for above, upto in self._windows:
                if above < size and size <= upto:
                    return True
        if self._stock is not None:
            return self._stock.should_custom_ar(inp)
        return False

    def custom_all_reduce(self, inp):
        """The sum over the ranks, in a new tensor. Serves whatever should_custom_ar() may have been asked about."""
        if torch.compiler.is_compiling():
            return torch.ops.sgl_pcie.all_reduce(inp, self._id)
        return self._serve(inp)

    @contextlib.contextmanager
    def capture(self):
        """Nothing of ours is to be prepared for a graph, or collected after it."""
        with self._stock.capture() if self._stock is not None else contextlib.nullcontext():
            yield

    def close(self):
        """Not collective."""
        self.disabled = True
        self._native.close()
        if self._stock is not None:
            self._stock.close()

    def _serve(self, inp):
        # Compiled code settles once on "custom"; a size of SGLang's own comes here then.
        if self._stock is not None and not self._ours(inp) and self._stock.should_custom_ar(inp):
            return self._stock.custom_all_reduce(inp)
        inp = inp.contiguous()
        out = torch.empty_like(inp)
        self._native.all_reduce(
            inp.data_ptr(), out.data_ptr(), inp.numel(), self._numbers[inp.dtype], _AUTO, _stream(self._index)
        )
        return out

    def _ours(self, inp):
        size = inp.numel() * inp.element_size()
        return inp.dtype in _DTYPES and inp.is_contiguous() and any(a < size <= b for a, b in self._windows)


# --- an operator, for code that is compiled ---------------------------------------------------------------------------

_live = weakref.WeakValueDictionary()
_operators = torch.library.Library("sgl_pcie", "DEF")
_operators.define("all_reduce(Tensor x, int communicator) -> Tensor")
_operators.impl("all_reduce", lambda x, communicator: _live[communicator]._serve(x), "CompositeExplicitAutograd")
_operators.impl("all_reduce", lambda x, communicator: torch.empty_like(x), "Meta")


def _register(comm):
    number = _register.next
    _register.next += 1
    _live[number] = comm
    return number


_register.next = 0


# --- small parts ------------------------------------------------------------------------------------------------------


def _round(gather, step, alike):
    try:
        said = step()
    except ranks.Disagreed:  # in a round of that step: all ranks are leaving it now
        raise
    except Exception as error:  # a server starts without us rather than not at all
        said = {"refused": "%.400s" % (error if str(error) else repr(error))}
    try:
        everything = ranks.exchange(gather, said)
    except ranks.Disagreed:
        if "refused" in said:  # the others are in a round of that step and cannot hear why
            log.warning("this rank of the group cannot take part: %s", said["refused"])
        raise
    ranks.settle(everything, alike)
    return everything


def _stream(index):
    return torch.cuda.current_stream(index).cuda_stream


def _boot_id():
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def _nvlink(uuids):
    try:
        return nvidia.all_nvlink(uuids)
    except nvidia.Missing:
        return None


def _timeout(environ=os.environ):
    text = environ.get(TIMEOUT, str(TIMEOUT_DEFAULT))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise choice.Refused("%s=%r is no number of seconds above 0" % (TIMEOUT, text))
    return seconds


def _sizes(above, upto):
    return "to %s" % _size(upto) if above < 0 else "above %s to %s" % (_size(above), _size(upto))


def _size(bytes_):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if bytes_ >= unit and bytes_ % unit == 0:
            return "%d %s" % (bytes_ // unit, name)
    return "any size" if bytes_ == profile.SIZE_MAX else "%d B" % bytes_
