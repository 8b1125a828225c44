"""SGLang's own GroupCoordinator on GPUs, one process a rank: what it does with our communicator, and without.

    groups.py --site FOLDER --world N [--flag unsafe] [--backend host] [--profile] [--other FOLDER] [--out FILE]

FOLDER holds a SGLang patched by `sgl-pcie apply` and built (libpar.so, _sgl_pcie.abi3.so). Modules that this Python
lacks are stood in for and listed in the output. --profile: a profile is written that leaves sizes in the middle to
stock. --other: the last rank takes our package from there, as if libpar.so had been replaced between two starts.
--as-is: ranks that share a GPU (shared.py) do not hide that from our communicator. For every size and dtype: equal to
NCCL within rounding, byte-equal across ranks, and who served it, counted; eagerly, in a captured graph replayed on
another stream, and under torch.compile with fullgraph. Prints one JSON object; exit code 1 if anything failed.
"""

import argparse
import faulthandler
import fcntl
import importlib.abc
import importlib.machinery
import inspect
import json
import logging
import os
import sys
import tempfile
import time
import traceback
import types

import shared

FLAG, BACKEND = "SGLANG_FORCE_CUSTOM_AR_PCIE", "SGLANG_PCIE_AR_BACKEND"
KIB = 1 << 10
# To 1 MiB ours by the start values of two ranks, to 8 MiB SGLang's own where it has one, above NCCL's.
SIZES = (2 * KIB, 10 * KIB, 40 * KIB, 64 * KIB, 160 * KIB, 512 * KIB, 1024 * KIB, 3072 * KIB, 16384 * KIB)
PROFILE = ((16 * KIB, "host-one-shot"), (64 * KIB, "stock"), (256 * KIB, "host-two-shot"))


# --- modules that are not there ---------------------------------------------------------------------------------------


class StandIn(types.ModuleType):
    """Any name asked of it is a class that does nothing."""

    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = type(
            name, (), {"__init__": lambda self, *a, **k: None, "__class_getitem__": classmethod(lambda c, k: c)}
        )
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Last in line: serves top-level packages in `names`, and what is below them."""

    def __init__(self, names):
        self.names, self.used = names, set()

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in self.names:
            return None
        self.used.add(name)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return StandIn(spec.name)

    def exec_module(self, module):
        pass


def import_sglang(site):
    """parallel_state of the release, and the modules stood in for."""
    sys.path.insert(0, site)
    names = set()
    finder = Finder(names)
    sys.meta_path.append(finder)
    for _ in range(40):  # each missing top-level package costs one try
        try:
            import sglang.srt.distributed.parallel_state as parallel_state

            return parallel_state, sorted(finder.used)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if not missing or missing in names or missing == "sglang":
                raise
            names.add(missing)
            for module in [m for m in sys.modules if m.partition(".")[0] == "sglang"]:
                del sys.modules[module]
    raise RuntimeError("too many modules are missing: %s" % sorted(names))


# --- a group ----------------------------------------------------------------------------------------------------------


def start_distributed(parallel_state, world, rank, port):
    """As SGLang starts it: its world group, too, which its own custom all-reduce asks, and no test of P2P."""
    from sglang.srt.utils import monkey_patch_p2p_access_check

    monkey_patch_p2p_access_check()
    parallel_state.init_distributed_environment(
        world_size=world,
        rank=rank,
        local_rank=shared.device(rank),
        distributed_init_method="tcp://127.0.0.1:%d" % port,
        backend="nccl",
    )


def make_group(parallel_state, world, rank):
    wanted = dict(
        group_ranks=[list(range(world))],
        local_rank=shared.device(rank),
        torch_distributed_backend="nccl",
        use_pynccl=True,
        use_custom_allreduce=True,
        group_name="tp",
    )
    kind = parallel_state.GroupCoordinator
    for name, parameter in inspect.signature(kind.__init__).parameters.items():
        if name != "self" and parameter.default is parameter.empty:
            wanted.setdefault(name, False)
    return kind(**wanted)


def write_profile(site, world, rank, folder):
    """A fresh profile.json for this machine and install; every rank has a state folder of its own."""
    from sgl_pcie import machine, nvidia, state

    os.environ[state.STATE] = os.path.join(folder, str(rank))
    place = os.path.join(os.environ[state.STATE], state.key(site))
    os.makedirs(place)
    uuids = [shared.name(nvidia.cuda_uuid(shared.device(r)), r) for r in range(world)]
    entries = [{"max_bytes": size, "algorithm": name} for size, name in PROFILE]
    tables = [{"world": world, "gpus": uuids, "entries": entries}]
    with open(os.path.join(place, "profile.json"), "w") as file:
        json.dump({"schema": "sgl-pcie-profile/1", "bound": machine.now(), "tables": tables}, file)


class Count:
    """Calls of an object's method, which goes on to do its work."""

    def __init__(self, owner, name):
        self.calls = 0
        inner = getattr(owner, name)

        def counted(*args, **kwargs):
            self.calls += 1
            return inner(*args, **kwargs)

        setattr(owner, name, counted)


class Turn:
    """One group at a time where ranks share GPUs: the library gives a GPU's room to the ranks of a group and knows of no
    other, so two groups whose kernels wait can keep each other's last rank out for good."""

    def __init__(self, context):
        self.ready, self.go = context.Semaphore(0), context.Event()

    def take(self, seconds):
        """In a rank, once it has imported everything."""
        self.ready.release()
        self.go.wait()
        faulthandler.dump_traceback_later(seconds)

    def give(self, ranks):
        """In their parent, which holds what this returns for as long as the turn lasts."""
        for _ in ranks:
            while not self.ready.acquire(timeout=1) and all(process.is_alive() for process in ranks):
                pass
        lock = open(os.path.join(tempfile.gettempdir(), "gpu-sglang.lock"), "w")
        if shared.RANKS:
            fcntl.flock(lock, fcntl.LOCK_EX)
        self.go.set()
        return lock


class Rank:
    def __init__(self, options, rank, turn):
        import torch
        import torch.distributed as dist

        self.torch, self.dist, self.rank, self.world = torch, dist, rank, options.world
        self.options, self.failed = options, []
        self.device = torch.device("cuda", shared.device(rank))
        torch.cuda.set_device(self.device)
        self.parallel_state, self.stand_ins = import_sglang(options.site)
        if options.other and rank == options.world - 1:
            sys.path.insert(0, options.other)
        if shared.RANKS:
            self.stand_ins += shared.STAND_INS[: 1 if options.as_is else None]
            if not options.as_is:
                shared.rename()
        if options.profile:
            write_profile(options.site, options.world, rank, options.state)
        import sglang

        self.version = getattr(sglang, "__version__", "?")
        turn.take(options.timeout - 5)
        start_distributed(self.parallel_state, options.world, rank, options.port)
        self.group = make_group(self.parallel_state, options.world, rank)
        self.parallel_state._TP = self.group  # SGLang's own custom all-reduce of some releases asks which rank it is
        self.set_server_args()
        self.ca = self.group.ca_comm
        self.ours = type(self.ca).__module__ == "sgl_pcie.communicator"

    def set_server_args(self):
        """0.5.5 asks them at every call whether symmetric memory is on."""
        server_args = sys.modules.get("sglang.srt.server_args")
        if getattr(server_args, "_global_server_args", 0) is None:
            server_args._global_server_args = types.SimpleNamespace(enable_symm_mem=False)
            self.stand_ins.append("server_args._global_server_args")

    def check(self, ok, what):
        if not ok:
            self.failed.append(what)

    def input(self, size, dtype, seed):
        torch = self.torch
        generator = torch.Generator(device=self.device).manual_seed(1000 * seed + self.rank)
        count = size // torch.empty(0, dtype=dtype).element_size()
        return torch.randn(count // 128, 128, device=self.device, generator=generator).to(dtype)

    def verify(self, x, y, what):
        """Against NCCL's sum in fp32, and all ranks' bytes against rank 0's."""
        torch = self.torch
        reference = x.to(torch.float32, copy=True)
        self.dist.all_reduce(reference)
        eps = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-23}[x.dtype]
        scale = x.to(torch.float32, copy=True).abs_()
        self.dist.all_reduce(scale)
        wrong = int(((y.float() - reference).abs() > self.world * eps * scale + 1e-30).sum())
        self.check(wrong == 0, "%s: %d elements differ from NCCL beyond rounding" % (what, wrong))
        first = y.contiguous().view(torch.uint8).clone()
        self.dist.broadcast(first, 0)
        same = bool((first == y.contiguous().view(torch.uint8)).all())
        self.check(same, "%s: bytes differ from rank 0's" % what)

    def counters(self):
        """Who is called: SGLang's NCCL path and what it ends in, the custom all-reduce, our library, SGLang's own."""
        counts = {"in_place": Count(self.group, "_all_reduce_in_place"), "nccl": Count(self.dist, "all_reduce")}
        if self.ca is not None and not self.ca.disabled:
            counts["custom"] = Count(self.ca, "custom_all_reduce")
            if self.ours:
                counts["ours"] = Count(self, "native")
                if self.ca._stock is not None:
                    counts["stock"] = Count(self.ca._stock, "custom_all_reduce")
        return counts

    def expected(self, x):
        """Who has to serve this one, by the profile and by SGLang's own limits."""
        if self.ca is None or self.ca.disabled:
            return ()
        size = x.numel() * x.element_size()
        if not self.ours:
            return ("custom",) if self.ca.should_custom_ar(x) else ("in_place", "nccl")
        if any(above < size <= upto for above, upto in self.ca._windows):
            return ("custom", "ours")
        if self.ca._stock is not None and self.ca._stock.should_custom_ar(x):
            return ("custom", "stock")
        return ("in_place", "nccl")

    def native(self):
        """Counted only; called by the wrapped native all_reduce below."""

    def watch_native(self):
        if not self.ours:
            return
        inner, rank = self.ca._native, self

        class Watched:
            def all_reduce(self, *args):
                rank.native()
                return inner.all_reduce(*args)

            def __getattr__(self, name):
                return getattr(inner, name)

        self.ca._native = Watched()

    def eager(self):
        torch, rows = self.torch, []
        self.watch_native()
        counts = self.counters()
        for size in SIZES:
            for seed, dtype in enumerate((torch.bfloat16, torch.float16, torch.float32)):
                before = {name: count.calls for name, count in counts.items()}
                x = self.input(size, dtype, seed)
                wanted = self.expected(x)
                y = self.group.all_reduce(x.clone())
                made = {name: count.calls - before[name] for name, count in counts.items()}
                self.verify(x, y, "eager %d %s" % (size, dtype))
                self.dist.all_reduce(x)
                name = str(dtype).rpartition(".")[2]
                rows.append({"bytes": size, "dtype": name, **made, "as_nccl": bool((x == y).all())})
                if wanted:
                    right = all(made[who] == int(who in wanted) for who in made)
                    self.check(right, "%d bytes %s: %s wanted, served %s" % (size, name, wanted, made))
        return rows

    def captured(self, calls):
        """What the calls return that are being captured."""
        return calls()

    def graph(self):
        """Three calls of different size in one graph, replayed on another stream with other inputs, eager between."""
        torch = self.torch
        shapes = [10 * KIB, 160 * KIB, 40 * KIB]
        inputs = [self.input(s, torch.bfloat16, 7 + i) for i, s in enumerate(shapes)]
        graph = torch.cuda.CUDAGraph()
        with self.group.graph_capture() as context:
            for x in inputs:  # a warm-up, as SGLang makes one
                self.group.all_reduce(x.clone())
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, stream=context.stream):
                outputs = self.captured(lambda: [self.group.all_reduce(x.clone()) for x in inputs])
        other, replays = torch.cuda.Stream(), 10
        for replay in range(replays):
            for i, x in enumerate(inputs):
                x.copy_(self.input(shapes[i], torch.bfloat16, 100 + 10 * replay + i))
            between = self.group.all_reduce(inputs[0].clone())
            other.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(other):
                graph.replay()
            torch.cuda.current_stream().wait_stream(other)
            self.check(bool((between == outputs[0]).all()), "graph: replay %d differs from the eager call" % replay)
            for x, y in zip(inputs, outputs):
                self.verify(x, y, "graph replay %d" % replay)
        return {"calls": len(shapes), "replays": replays}

    def compiled(self):
        torch, group = self.torch, self.group

        def step(x):
            x = group.all_reduce(x * 2)
            return x + 1

        made = {}
        for backend in ("aot_eager",):
            torch._dynamo.reset()
            run = torch.compile(step, fullgraph=True, backend=backend)
            for rows in (4, 7, 640):
                x = self.input(rows * 10 * KIB, torch.bfloat16, rows)
                torch._dynamo.maybe_mark_dynamic(x, 0)
                y = run(x.clone())
                expected = group.all_reduce(x * 2) + 1
                self.check(bool((y == expected).all()), "compiled %s, %d rows: differs from eager" % (backend, rows))
            made[backend] = "fullgraph"
        return made

    def result(self, lines):
        out = dict(
            sglang=self.version,
            world=self.world,
            gpus=self.torch.cuda.device_count(),
            flag=self.options.flag,
            backend=self.options.backend,
            communicator=type(self.ca).__module__ + "." + type(self.ca).__qualname__ if self.ca is not None else None,
            disabled=self.ca is None or bool(self.ca.disabled),
            stand_ins=self.stand_ins,
            torch=self.torch.__version__,
            windows=self.ca._windows if self.ours else None,
            stock=type(self.ca._stock).__name__ if self.ours else None,
            log=lines,
        )
        for name in ("eager", "graph", "compiled") if self.ours else ("eager",):
            started = time.time()
            try:
                out[name] = getattr(self, name)()
            except Exception:
                self.failed.append("%s: %s" % (name, traceback.format_exc(limit=-6)))
                if name != "compiled":
                    break
            out[name + "_s"] = round(time.time() - started, 1)
        if self.ours and self.options.profile:
            found = [[above, upto] for above, upto in self.ca._windows]
            self.check(found == [[-1, 16 * KIB], [64 * KIB, 256 * KIB]], "the profile is not obeyed: %s" % found)
        if self.options.log:
            self.check(self.rank > 0 or self.options.log in " ".join(lines), "no line says %r" % self.options.log)
        if self.options.expect:
            self.check(self.ours == (self.options.expect == "ours"), "expected %s" % self.options.expect)
        out["failed"] = self.failed[:20]
        return out


def worker(rank, options, queue, turn):
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append("%s %s %s" % (record.name, record.levelname, record.getMessage()))
    logger = logging.getLogger("sgl_pcie")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    if options.flag:
        os.environ[FLAG] = options.flag
    if options.backend:
        os.environ[BACKEND] = options.backend
    shared.separate()
    try:
        out = Rank(options, rank, turn).result(lines)
    except Exception:
        out = {"failed": [traceback.format_exc()], "log": lines}
    queue.put((rank, out))
    queue.close()
    queue.join_thread()
    os._exit(0)  # NCCL and CUDA have nothing to say about the test any more


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--site", required=True)
    parser.add_argument("--world", type=int, default=4)
    parser.add_argument("--flag", default="unsafe", help="'' leaves it unset")
    parser.add_argument("--backend", default="host")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--other", metavar="FOLDER")
    parser.add_argument("--as-is", action="store_true")
    parser.add_argument("--expect", choices=("ours", "stock"))
    parser.add_argument("--log", help="words that rank 0 must have logged")
    parser.add_argument("--name", default="", help="goes into the output")
    parser.add_argument("--port", type=int, default=29555)
    parser.add_argument("--timeout", type=float, default=150)
    parser.add_argument("--out")
    options = parser.parse_args()
    options.state = tempfile.mkdtemp()

    import multiprocessing

    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    turn, ranks = Turn(context), []
    for rank in range(options.world):
        ranks.append(context.Process(target=worker, args=(rank, options, queue, turn), daemon=True))
        ranks[-1].start()
    lock = turn.give(ranks)
    results, until = {}, time.time() + options.timeout
    while len(results) < options.world and time.time() < until:
        try:
            rank, out = queue.get(timeout=1)
            results[rank] = out
        except Exception:
            if all(p.exitcode not in (None, 0) for p in ranks):
                break
    for process in ranks:
        process.kill()
        process.join()
    lock.close()
    failed = [f for r in range(options.world) for f in results.get(r, {"failed": ["rank %d: no answer" % r]})["failed"]]
    out = dict(results.get(0, {}), name=options.name, failed=failed, ok=not failed)
    text = json.dumps(out)
    if options.out:
        with open(options.out, "a") as file:
            file.write(text + "\n")
    print("GROUPS", text[:9000], flush=True)
    return 0 if out["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
