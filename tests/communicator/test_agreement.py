"""All ranks take part, or all take stock and rank 0 says why; whatever one of them finds, at whatever step."""

import logging
import os
import sys
import types
import unittest
from unittest import mock

import common
import standin

sys.path.insert(0, str(common.ROOT / "python"))
standin.install()

from sgl_pcie import communicator, flag, library, machine, nvidia, profile, ranks  # noqa: E402

ENVIRON = {flag.FLAG: "unsafe", flag.BACKEND: "host"}
BOUND = {"driver": "580", "libpar.so": "a" * 64}


class Native:
    """_sgl_pcie.Communicator: two rounds like the real one; failures on demand of what the test sets."""

    made = []

    def __init__(self, rank, world, index, gather, **options):
        self.rank, self.options, self.closed, self.calls = rank, options, False, []
        if Scenario.leaves == rank:
            raise RuntimeError("no device")
        for _ in range(2):
            parts = gather(b"bad " if Scenario.fails == rank else b"good")
            if b"bad " in parts:
                raise RuntimeError("rank %d: told to fail" % (parts.index(b"bad ") // 4))
        Native.made.append(self)

    def set_profile(self, choices):
        if Scenario.refuses_profile == self.rank:
            raise RuntimeError("profile entry 0: too large")
        self.choices = choices

    def all_reduce(self, *args):
        self.calls.append(args)

    def close(self):
        self.closed = True


MODULE = types.SimpleNamespace(
    Communicator=Native,
    ALGORITHMS={name: i for i, name in enumerate(("auto",) + profile.ALGORITHMS)},
    DTYPES={"fp16": 0, "bf16": 1, "fp32": 2},
    WITH_HOST=1,
    WITH_PEER=2,
    VERSION="0.1.0",
    memory_bound=lambda world, transports, sentinel_bytes: (2 << 20, 8 << 20),
)


class Stock:
    """SGLang's own communicator, as groups of two hold it."""

    def __init__(self, disabled=False):
        self.disabled, self.closed, self.captures = disabled, False, 0

    def should_custom_ar(self, x):
        return x.numel() * x.element_size() <= 8 << 20

    def custom_all_reduce(self, x):
        return "stock"

    def capture(self):
        self.captures += 1
        return __import__("contextlib").nullcontext()

    def close(self):
        self.closed = True


class Scenario:
    leaves = fails = refuses_profile = None


class Case(unittest.TestCase):
    def setUp(self):
        Native.made = []
        Scenario.leaves = Scenario.fails = Scenario.refuses_profile = None
        self.lines = []
        handler = logging.Handler()
        handler.emit = lambda record: self.lines.append((record.levelname, record.getMessage()))
        flag.log.handlers, flag.log.propagate = [handler], False
        flag.log.setLevel(logging.INFO)
        flag.decision.cache_clear()
        self.patch(os.environ, **ENVIRON)
        self.attribute(library, "load", lambda: MODULE)
        self.attribute(machine, "now", lambda: BOUND)
        self.attribute(machine, "sha256", lambda path: "a" * 64)
        self.attribute(nvidia, "cuda_uuid", lambda index: "GPU-%d" % index)
        self.attribute(profile, "load", lambda bound: ((), "no profile"))
        self.attribute(communicator, "decision", lambda: flag.Decision(flag.COMMUNICATOR, 0))

    def patch(self, *args, **kwargs):
        patcher = mock.patch.dict(*args, **kwargs)
        patcher.start()
        self.addCleanup(patcher.stop)

    def attribute(self, owner, name, value):
        patcher = mock.patch.object(owner, name, value)
        patcher.start()
        self.addCleanup(patcher.stop)

    def on_rank(self, bad, good, wrong):
        """A stand-in that behaves on one rank: good(), or wrong() on rank `bad`."""
        return lambda *args: wrong(*args) if self.rank() == bad else good(*args)

    def rank(self):
        return self.group.local.rank

    def create(self, world=4, stock=None):
        def work(rank, group):
            self.group = group
            return communicator.create(group, "cuda:%d" % rank, stock)

        results, self.group = standin.in_threads(world, work)
        for result in results:
            if isinstance(result, Exception):
                raise result
        return results

    def assertAllOurs(self, comms):
        for comm in comms:
            self.assertIsInstance(comm, communicator.Communicator)
        self.assertEqual([level for level, _ in self.lines], ["INFO"], self.lines)

    def assertAllStock(self, comms, *names):
        self.assertEqual(comms, [None] * len(comms))
        said = [line for level, line in self.lines if "stock all-reduce for this group" in line]
        self.assertEqual(len(said), 1, "one line for the group: %s" % self.lines)
        for name in names:
            self.assertIn(name, said[0])
        self.assertTrue(all(native.closed for native in Native.made), "what was created is freed")


class Agreement(Case):
    # --- ours ---

    def test_all_agree(self):
        for world in range(2, 9):
            with self.subTest(world):
                self.lines.clear()
                self.assertAllOurs(self.create(world))
                line = self.lines[0][1]
                for name in (
                    "group of %d ranks" % world,
                    "host",
                    "start values, nothing was proved",
                    "2 MiB of GPU",
                    "8 MiB of host",
                    "aaaaaaaaaaaa",
                ):
                    self.assertIn(name, line)

    def test_what_the_library_is_told(self):
        self.patch(os.environ, {communicator.TIMEOUT: "12.5"})
        self.create(4)
        for native in Native.made:
            self.assertEqual(native.options, {"transports": 1, "sentinel_bytes": 1 << 20, "timeout_s": 12.5})
            self.assertEqual(native.choices, profile.for_library(profile.start("host", 4), MODULE.ALGORITHMS))

    def test_several_groups_in_a_process(self):
        first, second = self.create(4), self.create(2)
        self.assertEqual(len({comm._id for comm in first + second}), 6)

    # --- stock, all together ---

    def test_not_for_us(self):
        """Without a round: on another node nobody may be there to answer."""
        for world in (1, 9):
            self.assertEqual(self.create(world), [None] * world)
        self.attribute(machine, "now", lambda: dict(BOUND, **{"gpu 0": "a", "gpu 1": "b"}))
        self.assertEqual(self.create(4), [None] * 4)
        self.assertEqual(self.group.rounds, 0)
        self.assertTrue(all("2 to 8 GPUs of one machine" in line for _, line in self.lines))

    def test_one_rank_cannot_load_the_module(self):
        for bad in range(4):
            self.lines.clear()

            def missing():
                raise library.Missing("libpar.so is not there: run `sgl-pcie build`")

            self.attribute(library, "load", self.on_rank(bad, lambda: MODULE, missing))
            self.assertAllStock(self.create(), "rank %d: libpar.so is not there" % bad)

    def test_another_build_between_ranks(self):
        self.attribute(machine, "sha256", self.on_rank(2, lambda path: "a" * 64, lambda path: "b" * 64))
        self.assertAllStock(self.create(), "ranks 0 and 2 have another libpar.so", "aaaaaaaa", "bbbbbbbb")

    def test_another_machine(self):
        self.attribute(communicator, "_boot_id", self.on_rank(1, lambda: "this", lambda: "that"))
        self.assertAllStock(self.create(), "ranks 0 and 1 have another machine")

    def test_another_profile(self):
        measured = (profile.Table(4, frozenset(), (profile.Entry(100, "host-one-shot"),)),)
        self.attribute(profile, "load", self.on_rank(3, lambda bound: ((), ""), lambda bound: (measured, "")))
        self.assertAllStock(self.create(), "ranks 0 and 3 have another profile")

    def test_another_time_limit(self):
        self.attribute(communicator, "_timeout", self.on_rank(1, lambda: 240.0, lambda: 20.0))
        self.assertAllStock(self.create(), "another SGLANG_PCIE_AR_TIMEOUT_S")

    def test_a_time_limit_that_is_none(self):
        for text in ("", "soon", "0", "-3", "nan", "inf", "1e9"):
            self.lines.clear()
            self.patch(os.environ, {communicator.TIMEOUT: text})
            self.assertAllStock(self.create(), "%r is no number of seconds above 0" % text)

    def test_one_gpu_twice(self):
        self.attribute(nvidia, "cuda_uuid", lambda index: "GPU-%d" % (index // 2))
        self.assertAllStock(self.create(), "two ranks use the same GPU")

    def test_auto_leaves_nvlink_alone(self):
        self.patch(os.environ, {flag.BACKEND: "auto"})
        for joined, names in ((True, "NVLink joins"), (None, "cannot tell")):
            self.lines.clear()

            def asked(uuids):
                if joined is None:
                    raise nvidia.Missing("no NVML")
                return joined

            self.attribute(nvidia, "all_nvlink", asked)
            self.assertAllStock(self.create(), names)
        self.lines.clear()
        self.attribute(nvidia, "all_nvlink", lambda uuids: False)
        self.assertAllOurs(self.create())

    def test_a_rank_that_alone_has_no_verdict(self):
        """One was written while the ranks started, say: the others hear it, and wait for nothing."""
        fresh = flag.Decision(flag.COMMUNICATOR, 0)
        stale = flag.Decision(flag.STOCK, 0, "the verdict is stale: driver", refuses=flag.COMMUNICATOR)
        for bad in range(1, 4):
            self.lines.clear()
            self.attribute(communicator, "decision", self.on_rank(bad, lambda: fresh, lambda: stale))
            self.assertAllStock(self.create(), "rank %d: the verdict is stale: driver" % bad)
        self.lines.clear()
        self.attribute(communicator, "decision", lambda: stale)
        self.assertEqual((self.create(), self.lines), ([None] * 4, []), "its process has said it already")

    def test_a_verdict_that_does_not_speak_for_these(self):
        verdict = types.SimpleNamespace(covers=lambda backend, uuids: False)
        self.attribute(communicator, "decision", lambda: flag.Decision(flag.COMMUNICATOR, 0, "", verdict))
        self.assertAllStock(self.create(), "no PASS for backend host on these 4 GPUs")

    def test_creation_fails_on_one(self):
        for bad in range(4):
            self.lines.clear()
            Scenario.fails = bad
            self.assertAllStock(self.create(), "rank %d: told to fail" % bad)

    def test_one_rank_leaves_creation_before_the_others_rounds(self):
        """Its next round is of another kind than theirs: nobody waits for anybody."""
        for bad in range(4):
            self.lines.clear()
            Scenario.leaves = bad
            self.assertAllStock(self.create(), "failed while the others went on")
            said = [line for _, line in self.lines if "no device" in line]
            self.assertEqual(len(said), 1, "the rank itself says why: %s" % self.lines)

    def test_the_library_refuses_the_profile_of_one(self):
        Scenario.refuses_profile = 2
        self.assertAllStock(self.create(), "rank 2: profile entry 0: too large")
        self.assertEqual(len(Native.made), 4)

    def test_any_exception(self):
        def odd(bound):
            raise ZeroDivisionError

        self.attribute(profile, "load", self.on_rank(1, lambda bound: ((), ""), odd))
        self.assertAllStock(self.create(), "rank 1: ZeroDivisionError()")

    def test_a_long_reason(self):
        self.attribute(profile, "load", self.on_rank(1, lambda bound: ((), ""), lambda bound: 1 / 0))
        self.attribute(
            library, "load", self.on_rank(0, lambda: MODULE, lambda: (_ for _ in ()).throw(OSError("\u20ac" * 9999)))
        )
        self.assertAllStock(self.create(), "rank 0: \u20ac\u20ac")

    # --- what outside sizes get ---

    def test_groups_of_two_hold_stock(self):
        comms = self.create(2, Stock)
        self.assertAllOurs(comms)
        self.assertIn("other sizes: SGLang's custom all-reduce", self.lines[0][1])
        inside, outside, beyond = Vector(1 << 20), Vector(2 << 20), Vector(9 << 20)
        for comm in comms:
            self.assertTrue(comm.should_custom_ar(inside))
            self.assertTrue(comm.should_custom_ar(outside))
            self.assertFalse(comm.should_custom_ar(beyond))
            self.assertEqual(comm.custom_all_reduce(outside), "stock")
            with comm.capture():
                self.assertEqual(comm._stock.captures, 1)
            comm.close()
            self.assertTrue(comm._stock.closed)

    def test_stock_that_does_not_work_is_left_out_everywhere(self):
        def broken():
            raise RuntimeError("no P2P")

        for make in (
            self.on_rank(1, Stock, lambda: Stock(disabled=True)),
            self.on_rank(0, Stock, broken),
            lambda: None,
            lambda: Stock(disabled=True),
        ):
            self.lines.clear()
            for comm in self.create(2, make):
                self.assertIsNone(comm._stock)
                self.assertFalse(comm.should_custom_ar(Vector(2 << 20)))
                with comm.capture():
                    pass
            self.assertIn("other sizes: NCCL", "".join(line for _, line in self.lines))

    def test_larger_groups_do_not_build_it(self):
        for comm in self.create(4, lambda: self.fail("built")):
            self.assertFalse(comm.should_custom_ar(Vector((1 << 20) + 2)))


class Vector:
    """What should_custom_ar() may ask of a tensor."""

    dtype = "bf16"

    def __init__(self, size, dtype="bf16", contiguous=True):
        self.size, self.dtype, self.contiguous_ = size, dtype, contiguous

    def numel(self):
        return self.size // 2

    def element_size(self):
        return 2

    def is_contiguous(self):
        return self.contiguous_


class Contract(Case):
    """What SGLang reads, writes and probes."""

    FORBIDDEN = ("reduce_scatter", "should_custom_ag", "all_gather_reg", "all_gather_unreg", "obj", "has_multicast")
    FORBIDDEN += (
        "custom_fused_ar_rms",
        "fused_ar_rms",
        "fused_allreduce_rmsnorm",
        "custom_fused_ar_rms_per_group_quant",
    )

    def setUp(self):
        super().setUp()
        self.comm = self.create(4)[0]

    def test_probed_names(self):
        for name in self.FORBIDDEN:
            self.assertFalse(hasattr(self.comm, name), name)
        for name in ("disabled", "original_disabled", "capture", "should_custom_ar", "custom_all_reduce", "close"):
            self.assertTrue(hasattr(self.comm, name), name)
        self.assertNotIn("__del__", dir(type(self.comm)))

    def test_sizes_dtypes_and_layouts(self):
        for vector, ours in (
            (Vector(0), True),
            (Vector(2), True),
            (Vector(1 << 20), True),
            (Vector((1 << 20) + 2), False),
            (Vector(2, "fp16"), True),
            (Vector(2, "fp32"), True),
            (Vector(2, "fp64"), False),
            (Vector(2, "int32"), False),
            (Vector(2, contiguous=False), False),
        ):
            self.assertIs(self.comm.should_custom_ar(vector), ours)

    def test_disabled_is_written(self):
        self.comm.disabled = True
        self.assertIs(self.comm.should_custom_ar(Vector(2)), False)
        self.comm.disabled = self.comm.original_disabled
        self.assertIs(self.comm.should_custom_ar(Vector(2)), True)

    def test_closed(self):
        self.comm.close()
        self.comm.close()
        self.assertIs(self.comm.disabled, True)
        self.assertIs(self.comm.should_custom_ar(Vector(2)), False)


class Rounds(unittest.TestCase):
    def test_a_rank_that_is_at_another_step_is_seen_by_all(self):
        def work(rank, group):
            gather = ranks.gatherer(group)
            try:
                return gather(b"x" * 100) if rank else ranks.exchange(gather, {"refused": "no"})
            except ranks.Disagreed as error:
                return str(error)

        results, _ = standin.in_threads(3, work)
        self.assertEqual(results[1:], ["rank 0 failed while the others went on"] * 2)
        self.assertEqual(results[0], "rank 1 failed while the others went on")

    def test_bytes_arrive(self):
        results, _ = standin.in_threads(3, lambda rank, group: ranks.gatherer(group)(bytes([rank, 0, 255])))
        self.assertEqual(results, [bytes([0, 0, 255, 1, 0, 255, 2, 0, 255])] * 3)


if __name__ == "__main__":
    unittest.main()
