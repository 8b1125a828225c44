"""SGLang's own custom all-reduce (its class CustomAllreduce, V1) on libupstream.so instead of the kernel package.

`sgl-pcie build --upstream` puts libupstream.so here: upstream's kernel out of a patched checkout, behind a C interface
(kernels/upstream/overlay.h). SGLang's class calls seven functions of a module that it knows as `ops`, in every release;
that name is given a stand-in, which hands calls about our handles to the library, with pointers where SGLang has
tensors, and everything else to what was there before.

prepare() is what the hooks call before SGLang builds the communicator of a group, admit() what its NVLink test calls
while it does. prepare() is collective over the group and never raises for a reason that lies with us: either all ranks
of the group run on the library, or all have stock. Its answer is for the next communicator of that very group: one that
is built without it has stock.
"""

import contextlib
import ctypes
import functools
import inspect
import itertools
import os

import torch
import torch.distributed as dist

from . import machine, ranks
from .flag import decision, log

LIBRARY = "libupstream.so"
PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), LIBRARY)
ABI = 1
HANDLE_BYTES = 64
LIMITS = "SGLANG_PCIE_UPSTREAM_LIMITS"
ALGORITHM = "SGLANG_CUSTOM_ALLREDUCE_ALGO"

_DTYPES = {torch.float16: 0, torch.bfloat16: 1, torch.float32: 2}
_SIGNATURE = ["ipc_tensors", "rank_data", "rank", "full_nvlink"]  # since 0.4.4.post4


class Unusable(Exception):
    """Stock, and why."""


class _Setup:
    """From prepare() until the communicator is built."""

    group = None  # whose next communicator is to run on the library
    line = ""  # to log when it does
    building = False  # that communicator is being built
    admitted = False  # and SGLang's NVLink test has let it pass
    full_nvlink = False


_setup = _Setup()


def prepare(group, module):
    """Shall the communicator that SGLang builds next for this group run on libupstream.so? The same on all ranks.

    module: of SGLang's class CustomAllreduce, whose `ops` is replaced then.
    """
    _setup.group = None
    world, rank = dist.get_world_size(group=group), dist.get_rank(group=group)
    gpus = sum(name.startswith("gpu ") for name in machine.now())
    if world not in (2, 4, 6, 8) or 0 < gpus < world:
        return  # SGLang refuses it, too; on another node they may not have us at all
    try:
        library, said = _ready(module)
    except Exception as error:  # a server starts without us rather than not at all
        library, said = None, {"refused": "%.400s" % (error if str(error) else repr(error))}
    try:
        everything = ranks.exchange(ranks.gatherer(group), said)
        ranks.settle(everything, {"library": LIBRARY, "limits": LIMITS, "algorithm": ALGORITHM})
    except ranks.Disagreed as reason:
        if rank == 0 and not decision().refuses:
            log.warning("stock all-reduce for this group of %d ranks, not %s: %s", world, LIBRARY, reason)
        return
    if not isinstance(module.ops, Ops):
        _adopt(module, library)
    words = "SGLang's own custom all-reduce of this group of %d ranks: %s %.12s"
    _setup.group, _setup.line = group, "" if rank else words % (world, LIBRARY, said["library"])


def _adopt(module, library):
    """From now on the class asks us, and tells for which group it is being built."""
    stock = module.CustomAllreduce.__init__

    @functools.wraps(stock)
    def init(self, group, *args, **kwargs):
        with _building(group):
            stock(self, group, *args, **kwargs)

    module.ops = Ops(module.ops, library)
    module.CustomAllreduce.__init__ = init


@contextlib.contextmanager
def _building(group):
    _setup.building, _setup.group = group is not None and group is _setup.group, None
    try:
        yield
    finally:
        _setup.building = _setup.admitted = False


def admit(full_nvlink):
    """SGLang's NVLink test: may this group's communicator be set up? full_nvlink: what the test found, which the
    kernel is told, while SGLang goes by our answer."""
    _setup.admitted, _setup.full_nvlink = _setup.building, full_nvlink
    if _setup.admitted and _setup.line:
        log.info(_setup.line)
    return _setup.admitted


def refuse():
    """The NVLink test, where nothing was proved for these GPUs."""
    _setup.admitted = False


def _ready(module):
    if decision().refuses:
        raise Unusable(decision().reason)
    library = _library()
    ops = module.ops.stock if isinstance(module.ops, Ops) else module.ops
    parameters = list(inspect.signature(ops.init_custom_ar).parameters)
    if parameters != _SIGNATURE:
        raise Unusable("init_custom_ar of this SGLang takes %s" % ", ".join(parameters))
    words = {"limits": os.environ.get(LIMITS, ""), "algorithm": os.environ.get(ALGORITHM, "")}
    return library, dict(words, library=machine.sha256(PATH))


@functools.lru_cache(maxsize=None)
def _library():
    try:
        return Library(ctypes.CDLL(PATH, mode=os.RTLD_NOW | os.RTLD_LOCAL))
    except OSError as error:
        raise Unusable("%s: run `sgl-pcie build --upstream` again" % error) from error


class Library:
    """The seven functions as SGLang calls them; each works on the device of its communicator."""

    def __init__(self, native):
        self._native = native
        pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        for name, result, arguments in (
            ("abi", number, ()),
            ("last_error", ctypes.c_char_p, ()),
            ("meta_size", ctypes.c_int64, ()),
            ("init_custom_ar", pointer, (number, pointer, number, number, pointer, size, number)),
            ("dispose", number, (number, pointer)),
            ("register_buffer", number, (number, pointer, pointer, number)),
            ("all_reduce", number, (number, pointer, pointer, pointer, size, number, pointer, size, pointer)),
            ("get_graph_buffer_ipc_meta", ctypes.c_int64, (number, pointer, pointer, pointer, size)),
            ("register_graph_buffers", number, (number, pointer, pointer, pointer, size, number)),
        ):
            try:
                function = getattr(native, "upstream_" + name)
            except AttributeError as error:
                raise Unusable("%s lacks upstream_%s" % (LIBRARY, name)) from error
            function.restype, function.argtypes = result, arguments
        if native.upstream_abi() != ABI:
            raise Unusable("%s has interface %d, not %d" % (LIBRARY, native.upstream_abi(), ABI))
        self._worlds = {}  # handle: (device, ranks)

    def has(self, fa):
        return fa in self._worlds

    def _check(self, ok):
        if not ok:
            raise RuntimeError("%s: %s" % (LIBRARY, self._native.upstream_last_error().decode(errors="replace")))

    def meta_size(self):
        return self._native.upstream_meta_size()

    def init_custom_ar(self, ipc_tensors, rank_data, rank, full_nvlink):
        device, world = rank_data.device.index, len(ipc_tensors)
        room = rank_data.numel() * rank_data.element_size()
        fa = self._native.upstream_init_custom_ar(
            device, _pointers(ipc_tensors), world, rank, rank_data.data_ptr(), room, int(full_nvlink)
        )
        self._check(fa)
        self._worlds[fa] = device, world
        return fa

    def register_buffer(self, fa, ipc_tensors):
        device, world = self._worlds[fa]
        self._check(self._native.upstream_register_buffer(device, fa, _pointers(ipc_tensors), world) == 0)

    def all_reduce(self, fa, inp, out, reg_buffer, reg_buffer_sz_bytes):
        device, _ = self._worlds[fa]
        if inp.dtype != out.dtype or inp.numel() != out.numel() or inp.dtype not in _DTYPES:
            raise RuntimeError(
                "%s: from %d of %s to %d of %s" % (LIBRARY, inp.numel(), inp.dtype, out.numel(), out.dtype)
            )
        done = self._native.upstream_all_reduce(
            device,
            fa,
            inp.data_ptr(),
            out.data_ptr(),
            inp.numel(),
            _DTYPES[inp.dtype],
            reg_buffer or None,
            reg_buffer_sz_bytes,
            torch.cuda.current_stream(device).cuda_stream,
        )
        self._check(done == 0)

    def get_graph_buffer_ipc_meta(self, fa):
        device, _ = self._worlds[fa]
        count = self._native.upstream_get_graph_buffer_ipc_meta(device, fa, None, None, 0)
        self._check(count >= 0)
        handles, offsets = (ctypes.c_ubyte * (count * HANDLE_BYTES))(), (ctypes.c_int64 * count)()
        self._check(self._native.upstream_get_graph_buffer_ipc_meta(device, fa, handles, offsets, count) == count)
        return list(handles), list(offsets)

    def register_graph_buffers(self, fa, handles, offsets):
        device, world = self._worlds[fa]
        count = len(offsets[0])
        if len(handles) != world or any(len(o) != count for o in offsets):
            raise RuntimeError("%s: the ranks captured %s calls" % (LIBRARY, [len(o) for o in offsets]))
        bytes_ = (ctypes.c_ubyte * (world * count * HANDLE_BYTES)).from_buffer_copy(b"".join(map(bytes, handles)))
        numbers = (ctypes.c_int64 * (world * count))(*itertools.chain.from_iterable(offsets))
        self._check(self._native.upstream_register_graph_buffers(device, fa, bytes_, numbers, count, world) == 0)

    def dispose(self, fa):
        device, _ = self._worlds.pop(fa)
        self._check(self._native.upstream_dispose(device, fa) == 0)


class Ops:
    """What SGLang's class knows as `ops`: the module that was there, but for the communicators of the library."""

    def __init__(self, stock, library):
        self.stock, self._library = stock, library

    def __getattr__(self, name):
        return getattr(self.stock, name)

    def _of(self, fa):
        return self._library if self._library.has(fa) else self.stock

    def meta_size(self):
        return self._library.meta_size() if _setup.admitted else self.stock.meta_size()

    def init_custom_ar(self, ipc_tensors, rank_data, rank, full_nvlink):
        if not _setup.admitted:
            return self.stock.init_custom_ar(ipc_tensors, rank_data, rank, full_nvlink)
        return self._library.init_custom_ar(ipc_tensors, rank_data, rank, _setup.full_nvlink)

    def register_buffer(self, fa, *rest):
        return self._of(fa).register_buffer(fa, *rest)

    def all_reduce(self, fa, *rest):
        return self._of(fa).all_reduce(fa, *rest)

    def get_graph_buffer_ipc_meta(self, fa):
        return self._of(fa).get_graph_buffer_ipc_meta(fa)

    def register_graph_buffers(self, fa, *rest):
        return self._of(fa).register_graph_buffers(fa, *rest)

    def dispose(self, fa):
        return self._of(fa).dispose(fa)


def _pointers(addresses):
    return (ctypes.c_void_p * len(addresses))(*addresses)
