"""SGLang's own CustomAllreduce on libupstream.so, beside the kernel package's, in one GroupCoordinator a rank.

    upstream.py --site FOLDER [--world N] [--out FILE]

FOLDER holds a SGLang patched by `sgl-pcie apply` and built with `sgl-pcie build --upstream`. What groups.py checks of ours is
checked of it: sums against NCCL within rounding, byte-equal across ranks and, in groups of two, to the kernel package's,
eagerly and in captured graphs that are replayed on another stream; and who served, counted. Then both are timed in graphs;
more than two ranks without NVLink have only the library. Prints one JSON object; exit code 1 if anything failed.
"""

import os
import statistics
import sys
import traceback

os.environ.update(SGLANG_FORCE_CUSTOM_AR_PCIE="unsafe", SGLANG_PCIE_AR_BACKEND="upstream")

import groups  # noqa: E402

TIMED = (2 * groups.KIB, 10 * groups.KIB, 42 * groups.KIB, 160 * groups.KIB, 1024 * groups.KIB)
CALLS, REPLAYS = 50, 15


class Rank(groups.Rank):
    def prepare(self):
        from sgl_pcie import upstream

        self.upstream = upstream
        module = sys.modules[type(self.ca).__module__]
        self.check(isinstance(module.ops, upstream.Ops), "SGLang's ops are not replaced")
        self.library = module.ops._library
        self.check(self.library.has(self.ca._ptr), "the communicator is not the library's")
        # Built without the hook that asks all ranks: this one has the kernel package's.
        stock = type(self.ca)(self.group.cpu_group, self.device)
        self.check(self.world > 2 or not stock.disabled, "no stock to compare with")
        self.stock = None if stock.disabled else stock  # more than two ranks without NVLink: the kernel package has none
        self.check(self.stock is None or not self.library.has(stock._ptr), "stock is on the library")
        self.calls = groups.Count(self.library, "all_reduce")
        return {"stock": self.stock is not None, "full_nvlink": upstream._setup.full_nvlink}

    def served(self, function):
        before = self.calls.calls
        result = function()
        return result, self.calls.calls - before

    def eager(self):
        torch, rows = self.torch, 0
        for size in (size for size in groups.SIZES if size <= self.ca.max_size):
            for seed, dtype in enumerate((torch.bfloat16, torch.float16, torch.float32)):
                x = self.input(size, dtype, seed)
                y, served = self.served(lambda: self.group.all_reduce(x.clone()))
                self.verify(x, y, "eager %d %s" % (size, dtype))
                self.check(served == 1, "%d bytes: the library served %d" % (size, served))
                if self.world == 2:  # one kernel whatever the size, and one order of two
                    self.check(bool((y == self.stock.custom_all_reduce(x)).all()), "%d %s: not as stock" % (size, dtype))
                rows += 1
        return {"calls": rows}

    def captured(self, calls):
        outputs, served = self.served(calls)
        self.check(served == len(outputs), "captured: the library served %d" % served)
        return outputs

    def time_of(self, comm, x):
        torch = self.torch
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with comm.capture(), torch.cuda.stream(stream):
            with torch.cuda.graph(graph, stream=stream):
                kept = [comm.custom_all_reduce(x) for _ in range(CALLS)]
        samples = []
        for replay in range(-3, REPLAYS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self.dist.barrier(group=self.group.cpu_group)
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            if replay >= 0:
                samples.append(begin.elapsed_time(end) * 1e3 / CALLS)
        slowest = torch.tensor([statistics.median(samples)])
        self.dist.all_reduce(slowest, op=self.dist.ReduceOp.MAX, group=self.group.cpu_group)
        del kept
        return round(slowest.item(), 2)

    def times(self):
        rows = []
        for size in TIMED:
            x = self.input(size, self.torch.bfloat16, 3)
            rows.append({"bytes": size, "upstream_us": self.time_of(self.ca, x)})
            if self.stock is not None:
                rows[-1]["v1_us"] = self.time_of(self.stock, x)
        return rows

    def result(self, lines):
        out = dict(sglang=self.version, world=self.world, gpus=self.torch.cuda.device_count())
        out.update(torch=self.torch.__version__, stand_ins=self.stand_ins, log=lines)
        out["communicator"] = type(self.ca).__module__ + "." + type(self.ca).__qualname__
        for name in ("prepare", "eager", "graph", "times"):
            try:
                out[name] = getattr(self, name)()
            except Exception:
                self.failed.append("%s: %s" % (name, traceback.format_exc(limit=-6)))
                break
        out["failed"] = self.failed[:20]
        return out


groups.Rank = Rank

if __name__ == "__main__":
    sys.argv += ["--flag", "unsafe", "--backend", "upstream"]
    sys.exit(groups.main())
