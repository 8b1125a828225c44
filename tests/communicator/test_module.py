"""_sgl_pcie: arguments, errors, waits; and that it loads in every CPython there is, or says what is missing."""

import ctypes
import glob
import multiprocessing
import os
import pathlib
import subprocess
import sys
import threading
import time
import types
import unittest
from unittest import mock

import common

sys.path.insert(0, str(common.FAKE))

from sgl_pcie import _sgl_pcie as module  # noqa: E402
from sgl_pcie import library  # noqa: E402

HOST_ONE_SHOT = 1


def alone(mine):
    """The all-gather of a rank that is all ranks."""
    return mine * 2


def over_pipes(pipes, rank):
    """The all-gather of processes: everyone sends to everyone."""

    def gather(mine):
        for other, pipe in pipes.items():
            pipe.send_bytes(mine)
        parts = {other: pipe.recv_bytes() for other, pipe in pipes.items()}
        parts[rank] = mine
        return b"".join(parts[r] for r in sorted(parts))

    return gather


def in_processes(world, work, *args):
    """work(rank, gather, *args) in `world` processes; what each returned, or its exception's text."""
    ends = [{} for _ in range(world)]
    for a in range(world):
        for b in range(a):
            ends[a][b], ends[b][a] = multiprocessing.Pipe()
    queue = multiprocessing.Queue()

    def run(rank):
        try:
            queue.put((rank, work(rank, over_pipes(ends[rank], rank), *args)))
        except Exception as error:
            queue.put((rank, "%s: %s" % (type(error).__name__, error)))

    ranks = [multiprocessing.Process(target=run, args=(rank,)) for rank in range(world)]
    for process in ranks:
        process.start()
    results = dict(queue.get(timeout=60) for _ in ranks)
    for process in ranks:
        process.join()
    return [results[rank] for rank in range(world)]


def sums(rank, gather, world):
    comm = module.Communicator(rank, world, rank, gather, transports=module.WITH_HOST, timeout_s=9.5, late_s=1)
    comm.set_profile([(1 << 20, HOST_ONE_SHOT), (1 << 21, HOST_ONE_SHOT, 4, 64)])
    floats = ctypes.c_float * 1000
    mine, out = floats(*[rank + i for i in range(1000)]), floats()
    comm.all_reduce(ctypes.addressof(mine), ctypes.addressof(out), 1000, module.DTYPES["fp32"], 0, 0)
    told = (comm.rank, comm.world, comm.choose(100), comm.choose(1 << 22), comm.max_bytes(0), comm.status())
    comm.close()
    comm.close()
    return list(out), told


def fails(rank, gather, world):
    with mock.patch.dict(os.environ, FAKE_PAR_FAIL="1"):
        module.Communicator(rank, world, rank, gather)


class Calls(unittest.TestCase):
    def test_ranks_sum(self):
        for world in (2, 3, 8):
            expected = [float(sum(range(world)) + world * i) for i in range(1000)]
            for rank, (out, told) in enumerate(in_processes(world, sums, world)):
                self.assertEqual(out, expected)
                self.assertEqual(told, (rank, world, HOST_ONE_SHOT, 0, 1 << 21, 0))

    def test_creation_fails_on_all_ranks_with_the_librarys_text(self):
        self.assertEqual(in_processes(3, fails, 3), ["Error: rank 1: told to fail"] * 3)

    def test_error_has_text_and_code(self):
        with self.assertRaisesRegex(module.Error, "world size 9 is not in 2..8") as caught:
            module.Communicator(0, 9, 0, alone)
        self.assertEqual(caught.exception.code, -1)
        self.assertIsInstance(caught.exception, RuntimeError)

    def test_the_callbacks_own_exception_comes_out(self):
        def breaks(mine):
            raise KeyError("gloo is gone")

        with self.assertRaisesRegex(KeyError, "gloo is gone"):
            module.Communicator(0, 2, 0, breaks)

    def test_what_a_callback_must_return(self):
        for wrong, error in ((b"", ValueError), ("text", TypeError), (None, TypeError), (b"x" * 10000, ValueError)):
            with self.assertRaises(error):
                module.Communicator(0, 2, 0, lambda mine: wrong)

    def comm(self):
        # Alone in a world of two: enough for what does not wait for the other.
        comm = module.Communicator(0, 2, 0, alone)
        self.addCleanup(comm.close)
        return comm

    def test_wrong_arguments(self):
        comm = self.comm()
        for args in ((), (1,) * 5, (1,) * 7, (1, 2, "3", 0, 0, 0), (1, 2, -3, 0, 0, 0), (1, 2, 1 << 70, 0, 0, 0)):
            with self.assertRaises((TypeError, OverflowError)):
                comm.all_reduce(*args)
        for profile in (None, 7, [7], [()], [(1,)], [(1, "x")], [(-1, 1)], [(1 << 64, 1)], [(1, 1)] * 65):
            with self.assertRaises((TypeError, ValueError, OverflowError)):
                comm.set_profile(profile)
        with self.assertRaisesRegex(module.Error, "does not rise"):
            comm.set_profile([(2, 1), (1, 1)])
        for args in ((), (0, 2), (0, 2, 0, alone, 1)):
            with self.assertRaises(TypeError):
                module.Communicator(*args)

    def test_nothing_is_served_without_a_profile_entry(self):
        with self.assertRaisesRegex(module.Error, "serves no message of 40 bytes") as caught:
            self.comm().all_reduce(8, 8, 10, 2, 0, 0)
        self.assertEqual(caught.exception.code, -2)

    def test_abort_and_report(self):
        comm = self.comm()
        self.assertIsNone(comm.report())
        comm.abort("the test says so")
        self.assertEqual(comm.status(), -8)
        self.assertEqual(comm.report()["text"], "aborted by the test")
        with self.assertRaisesRegex(module.Error, "aborted"):
            comm.all_reduce(8, 8, 1, 2, HOST_ONE_SHOT, 0)

    def test_closed(self):
        comm = self.comm()
        comm.close()
        for call in (
            comm.status,
            comm.report,
            lambda: comm.choose(1),
            lambda: comm.all_reduce(*[0] * 6),
            lambda: comm.rank,
        ):
            with self.assertRaisesRegex(module.Error, "closed"):
                call()

    def test_memory_bound(self):
        device, host = module.memory_bound(4, module.WITH_HOST, 1 << 16)
        self.assertGreater(device, 0)
        with self.assertRaises(module.Error):
            module.memory_bound(1, module.WITH_HOST)
        with self.assertRaises(module.Error):
            module.memory_bound(4, 0)
        for bytes_ in (2**64, 2**63):
            with self.assertRaises(OverflowError):
                module.memory_bound(4, module.WITH_HOST, bytes_)
        with self.assertRaises(OverflowError):
            module.memory_bound(4, 2**32 + 1)

    def test_others_run_while_it_waits(self):
        beats, stop = [], threading.Event()

        def beat():
            while not stop.wait(0.01):
                beats.append(time.monotonic())

        other = threading.Thread(target=beat)
        other.start()
        try:
            with mock.patch.dict(os.environ, FAKE_PAR_SLEEP_MS="300"):
                comm = module.Communicator(0, 2, 0, alone)
                created = len(beats)
                comm.close()
                closed = len(beats) - created
        finally:
            stop.set()
            other.join()
        self.assertGreater(created, 5, "creating holds the interpreter lock")
        self.assertGreater(closed, 5, "closing holds the interpreter lock")

    def test_no_reference_is_leaked(self):
        def gather(mine):
            return mine * 2

        before = sys.getrefcount(gather), sys.getrefcount(module.Communicator), sys.getrefcount(module.Error)
        for _ in range(50):
            comm = module.Communicator(0, 2, 0, gather)
            comm.set_profile([(1, 1)])
            comm.report()
            del comm
            with self.assertRaises(module.Error):
                module.Communicator(0, 9, 0, gather)
        after = sys.getrefcount(gather), sys.getrefcount(module.Communicator), sys.getrefcount(module.Error)
        self.assertEqual(before, after)


def interpreters():
    """Every CPython from 3.10 on that this machine has, one per version."""
    places = [
        "/usr/bin/python3.*",
        "/usr/local/bin/python3.*",
        "~/.pyenv/versions/*/bin/python3",
        "/opt/python*/bin/python3",
    ]
    found = {}
    for path in sorted(p for place in places for p in glob.glob(os.path.expanduser(place))):
        ask = "import sys; print(sys.implementation.name, *sys.version_info[:2])"
        try:
            told = subprocess.run([path, "-I", "-c", ask], capture_output=True, text=True, timeout=60).stdout.split()
        except OSError:
            continue
        if told[:1] == ["cpython"] and tuple(map(int, told[1:])) >= (3, 10):
            found.setdefault(tuple(map(int, told[1:])), path)
    return found


class Loads(common.Scratch, unittest.TestCase):
    def test_in_every_cpython(self):
        code = (
            "import sys; sys.path.insert(0, %r); from sgl_pcie import library; m = library.load(); "
            "c = m.Communicator(0, 2, 0, lambda b: b * 2); c.set_profile([(9, 1)]); print(c.choose(8), m.ABI)"
        ) % str(common.FAKE)
        for version, path in interpreters().items():
            with self.subTest(version):
                done = subprocess.run([path, "-I", "-B", "-c", code], capture_output=True, text=True, timeout=60)
                self.assertEqual((done.stdout, done.stderr), ("1 1\n", ""))
        print("\nloads in CPython", ", ".join("%d.%d" % v for v in sorted(interpreters())), end=" ")

    def missing(self, target):
        """What loading from this package complains about, in a process of its own."""
        code = (
            "import sys; sys.path.insert(0, %r)\nfrom sgl_pcie import library\n"
            "try: library.load()\nexcept library.Missing as error: print(error)"
        ) % str(target.parent)
        return subprocess.run(
            [sys.executable, "-I", "-B", "-c", code], capture_output=True, text=True, timeout=60, check=True
        ).stdout

    def test_nothing_built(self):
        self.assertIn("run `sgl-pcie build`", self.missing(common.package(self.scratch, library=False, module=False)))

    def test_library_gone(self):
        self.assertIn("libpar.so", self.missing(common.package(self.scratch, library=False)))

    def test_library_of_another_kind(self):
        for content, names in ((b"", "cannot load libpar.so"), (b"\x7fELF nonsense", "cannot load libpar.so")):
            with self.subTest(content):
                folder = self.scratch / str(len(content))
                folder.mkdir()
                target = common.package(folder)
                (target / "libpar.so").write_bytes(content)
                self.assertIn(names, self.missing(target))
                self.assertIn("run `sgl-pcie build` again", self.missing(target))

    def test_library_without_our_functions(self):
        target = common.package(self.scratch)
        libc = next(
            line.split()[-1] for line in pathlib.Path("/proc/self/maps").read_text().splitlines() if "/libc.so" in line
        )
        (target / "libpar.so").write_bytes(pathlib.Path(libc).read_bytes())
        self.assertRegex(self.missing(target), "has no par_|cannot load libpar.so")

    def test_free_threaded(self):
        with mock.patch.object(library.sysconfig, "get_config_var", lambda name: 1):
            with self.assertRaisesRegex(library.Missing, "free-threaded"):
                library.load()

    def test_other_pythons(self):
        for implementation, version in (("pypy", (3, 11)), ("cpython", (3, 9))):
            fake = types.SimpleNamespace(
                implementation=types.SimpleNamespace(name=implementation), version_info=version, version="x y"
            )
            with mock.patch.object(library, "sys", fake), self.assertRaisesRegex(
                library.Missing, "CPython 3.10 or newer"
            ):
                library.load()

    @unittest.skipIf(common.REAL is None, "no nvcc, no libpar.so")
    @unittest.skipIf(os.path.exists("/dev/nvidiactl"), "there is a driver")
    def test_the_real_one_without_a_driver(self):
        code = (
            "import sys; sys.path.insert(0, %r)\nfrom sgl_pcie import library\nm = library.load()\n"
            "from sgl_pcie import profile\n"
            "print(m.memory_bound(4, m.WITH_HOST, 1 << 16)[0] > 0, set(m.ALGORITHMS) == {'auto', *profile.ALGORITHMS})\n"
            "try: m.Communicator(0, 2, 0, lambda b: b * 2)\nexcept m.Error as error: print(error.code, error)"
        ) % common.REAL
        done = subprocess.run(
            [sys.executable, "-I", "-B", "-c", code], capture_output=True, text=True, timeout=60, check=True
        )
        self.assertRegex(done.stdout, r"True True\n-4 rank 0: cuda\w+: .*(driver|device)")

    def test_names_are_those_of_the_profile(self):
        from sgl_pcie import profile

        self.assertEqual(set(module.ALGORITHMS), {"auto", *profile.ALGORITHMS})


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    unittest.main()
