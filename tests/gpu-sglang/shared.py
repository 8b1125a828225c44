"""Ranks that share a GPU, on a machine with fewer GPUs than ranks: what has to be told to whom then.

RANKS_SHARE_GPUS=N in the environment (run.sh sets it, and starts MPS, so that the ranks' kernels run at the same time):
N ranks are dealt out over the GPUs in turn. SGLang is given the GPU of each rank where it asks for one. NCCL refuses two
ranks on one GPU of a host, so every process is a host of its own to it and it goes over sockets. Our communicator
refuses the same, so each rank's GPU gets a name of its own. Such a run shows function, and nothing about speed.
"""

import contextlib
import os

RANKS = int(os.environ.get("RANKS_SHARE_GPUS", "0"))  # 0: every rank has its own
STAND_INS = ["NCCL_HOSTID", "sgl_pcie: a GPU for each rank"]


def device(rank):
    import torch

    return rank % torch.cuda.device_count() if RANKS else rank


@contextlib.contextmanager
def reindex(rank):
    """In place of SGLang's maybe_reindex_device_id, which it asks before it starts a rank."""
    yield device(rank)


def separate():
    """In each rank's process, before its first NCCL communicator."""
    if RANKS:
        os.environ.update(NCCL_HOSTID="process-%d" % os.getpid(), NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1")


def name(uuid, rank):
    return "%s/%d" % (uuid, rank) if RANKS else uuid


def rename():
    """In each rank's process, before its first communicator of ours."""
    from sgl_pcie import communicator, machine

    identify, real = communicator._Setup.identify, machine.now()
    here = [real[key] for key in sorted(real) if key.startswith("gpu ")]

    def renamed(setup):
        said = identify(setup)
        return dict(said, uuid=name(said["uuid"], setup.rank))

    gpus = {"gpu %d" % rank: name(here[rank % len(here)], rank) for rank in range(RANKS)} if here else {}
    now = {**real, **gpus}
    communicator._Setup.identify = renamed
    machine.now = lambda: now


def register():
    """A plugin of SGLang (entry point in sglang.srt.plugins): in its launcher and in every rank's process."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    if RANKS:
        separate()
        rename()
        HookRegistry.register("sglang.srt.entrypoints.engine.maybe_reindex_device_id", reindex, HookType.REPLACE)
