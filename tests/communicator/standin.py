"""As much of torch as sgl_pcie.communicator needs, for tests of how ranks agree; they are threads of one process."""

import contextlib
import sys
import threading
import types


class Tensor(list):
    """A vector of bytes."""

    def tolist(self):
        return list(self)


class Group:
    """A CPU group of `world` threads; `rank` is this thread's."""

    def __init__(self, world):
        self.world = world
        self.local = threading.local()
        self.barrier = threading.Barrier(world)
        self.slots = [None] * world
        self.rounds = 0

    def all_gather(self, got, sent):
        self.slots[self.local.rank] = list(sent)
        self.barrier.wait(10)
        for place, part in zip(got, self.slots):
            place[:] = part
        if self.barrier.wait(10) == 0:
            self.rounds += 1


class Library:
    operators = {}

    def __init__(self, name, kind):
        pass

    def define(self, schema):
        pass

    def impl(self, name, function, key):
        self.operators[name, key] = function


class Device(str):
    @property
    def index(self):
        return int(self.rpartition(":")[2])


def install():
    """Put the modules where imports find them."""
    torch = types.ModuleType("torch")
    torch.uint8, torch.bfloat16, torch.float16, torch.float32 = "uint8", "bf16", "fp16", "fp32"
    torch.tensor = lambda data, dtype=None: Tensor(data)
    torch.empty = lambda count, dtype=None: Tensor([0] * count)
    torch.device = Device
    torch.inference_mode = lambda on: contextlib.nullcontext()
    torch.library = types.SimpleNamespace(Library=Library)
    torch.version = types.SimpleNamespace(cuda="13.0")
    torch.compiler = types.SimpleNamespace(is_compiling=lambda: False)
    torch.distributed = types.ModuleType("torch.distributed")
    torch.distributed.get_world_size = lambda group: group.world
    torch.distributed.get_rank = lambda group: group.local.rank
    torch.distributed.all_gather = lambda got, sent, group: group.all_gather(got, sent)
    sys.modules.update({"torch": torch, "torch.distributed": torch.distributed})
    return torch


def in_threads(world, work):
    """[work(rank, group)] of `world` threads; an exception stands for what its thread returned."""
    group, results = Group(world), [None] * world

    def run(rank):
        group.local.rank = rank
        try:
            results[rank] = work(rank, group)
        except Exception as error:
            results[rank] = error
            group.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results, group
