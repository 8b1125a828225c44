"""The ranks of a group agree before anything is created: all of them take part, or all take stock.

Everything here runs over SGLang's CPU (gloo) group and moves plain bytes. What a rank found out alone, good or bad, it
brings to a round. Rounds have a kind, and all have the same size on the wire: a rank that left a step early meets the
others' next round with its own, all of them see that, and all of them leave there.
"""

import json
import struct

import torch
import torch.distributed as dist

_FRAME = 4096
_HEADER = struct.Struct("<II")  # kind, length
_ROOM = _FRAME - _HEADER.size
CREATE, AGREE = 1, 2  # kinds: libpar.so's own rounds, and ours


class Disagreed(Exception):
    """Stock for all ranks, and why."""


def gatherer(group):
    """A function: bytes of this rank -> bytes of all ranks, one after the other."""
    world = dist.get_world_size(group=group)

    def gather(mine, kind=CREATE):
        frame = _HEADER.pack(kind, len(mine)) + mine.ljust(_ROOM, b"\0")
        return b"".join(_unframe(f, rank, kind, len(mine)) for rank, f in enumerate(_all_gather(group, world, frame)))

    return gather


def _all_gather(group, world, frame):
    # Groups may be built under inference mode, whose tensors gloo refuses.
    with torch.inference_mode(False):
        sent = torch.tensor(list(frame), dtype=torch.uint8)
        got = [torch.empty(len(frame), dtype=torch.uint8) for _ in range(world)]
        dist.all_gather(got, sent, group=group)
        return [bytes(part.tolist()) for part in got]


def _unframe(frame, rank, kind, length):
    if _HEADER.unpack_from(frame) != (kind, length):
        raise Disagreed("rank %d failed while the others went on" % rank)
    return frame[_HEADER.size : _HEADER.size + length]


def exchange(gather, said):
    """Every rank's dict of text, in order of rank."""
    text = json.dumps(said).encode()
    if len(text) > _ROOM:
        text = json.dumps({"refused": "more to say than %d bytes" % _ROOM}).encode()
    everything = gather(text.ljust(_ROOM), AGREE)
    return [json.loads(everything[at : at + _ROOM].decode()) for at in range(0, len(everything), _ROOM)]


def settle(said, alike):
    """Disagreed if a rank refused, or if the ranks differ in one of the keys `alike` ({key: what it is})."""
    for rank, words in enumerate(said):
        if "refused" in words:
            raise Disagreed("rank %d: %s" % (rank, words["refused"]))
    for key, what in alike.items():
        for rank, words in enumerate(said):
            if words.get(key) != said[0].get(key):
                raise Disagreed(
                    "ranks 0 and %d have another %s: %.16s and %.16s" % (rank, what, said[0].get(key), words.get(key))
                )
