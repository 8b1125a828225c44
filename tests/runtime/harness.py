"""Run the all-reduce decisions of one real SGLang tree, and print them as JSON.

    python3 -I -B harness.py TREE

TREE holds sglang/srt/distributed/ of a release, stock or patched, and perhaps sgl_pcie/. Real are
custom_all_reduce.py, custom_all_reduce_utils.py, custom_all_reduce_v2.py with its configs/; with HARNESS_TORCH=real
also PyTorch. Everything else that these import is stood in here:

    torch   device, Tensor, tensor, empty, version; of a real one only the device of empty() and the version's cuda
    torch.cuda, torch.distributed   a machine with eight GPUs, and rank 0 of a group on the GPUs 0, 1, 2, ...
    pynvml  the P2P status of NVLink, as the scenario has it
    sglang.srt.utils, .environ, ._custom_ops, ...custom_all_reduce_ops, ...cuda_wrapper, .parallel_state
    any other module of sglang, sgl_kernel, vllm, torch: attributes made up when asked for

SGLang replaces gpu_p2p_access_check by a constant unless --enable-p2p-check is given; so does this.
The output lists what was made up ("stood_in").
"""

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import json
import logging
import os
import stat  # noqa: F401  (stdlib that sgl_pcie.flag imports: its own modules are what is counted)
import sys
import types
import typing

TREE = sys.argv[1]
COMMUNICATORS = "sglang.srt.distributed.device_communicators"
REAL = {
    COMMUNICATORS + "." + name for name in ("custom_all_reduce", "custom_all_reduce_utils", "custom_all_reduce_v2")
}
REAL |= {COMMUNICATORS + ".configs", COMMUNICATORS + ".configs.custom_all_reduce_v2"}
PACKAGES = {"sglang", "sglang.srt", "sglang.srt.distributed", COMMUNICATORS}
STOOD_IN = set()


class Scenario:
    """What the machine and the group look like; changed before each construction."""

    world, nvlink, same_node, p2p, vllm, library, backend = 4, False, True, True, False, True, "gloo"


class Group:
    def __init__(self, name="tp"):
        self.name = name


calls = []  # what the kernels' library was asked for


def called(name, result=None):
    def stand_in(*args, **kwargs):
        calls.append([name, [plain(arg) for arg in args], sorted(kwargs)])
        return result

    return stand_in


# ---------------------------------------------------------------------------------------------------------------


class Tensor:
    """As much of a tensor as a decision looks at."""

    def __init__(self, data=(), elements=0, contiguous=True):
        self.data, self.elements, self.contiguous = list(data), elements, contiguous

    def numel(self):
        return self.elements

    def element_size(self):
        return 2

    def is_contiguous(self):
        return self.contiguous

    def storage(self):
        return types.SimpleNamespace(nbytes=lambda: 1 << 40)

    def storage_offset(self):
        return 0

    def item(self):
        return self.data[0]

    def __int__(self):
        return int(self.data[0])


class Device:
    def __init__(self, text):
        self.type, _, index = str(text).partition(":")
        self.index = int(index) if index else None

    def __repr__(self):
        return "%s:%s" % (self.type, self.index)


class Setting:
    """One of sglang.srt.environ's settings."""

    def __init__(self, name):
        self.name = name

    def get(self):
        default = 16384 if self.name.endswith("_KB") else "OPT_USE_CUSTOM_ALL_REDUCE_V2" in self.name
        return type(default)(int(os.environ.get(self.name, default)))

    def is_set(self):
        return self.name in os.environ


class Settings:
    def __getattr__(self, name):
        return Setting(name)


def p2p_status(handle, peer, index):
    return 0 if Scenario.nvlink else 1


def all_gather(out, tensor, group=None):
    for rank, item in enumerate(out):
        item.data[0] = rank


def all_gather_object(out, item, group=None):
    out[:] = [item] * len(out)


def cuda_library():
    pointer = types.SimpleNamespace(value=4096)
    return types.SimpleNamespace(
        cudaMalloc=lambda size: calls.append(["cudaMalloc", size]) or pointer,
        cudaIpcGetMemHandle=lambda pointer: b"handle",
        cudaIpcOpenMemHandle=lambda handle: pointer,
        cudaFree=lambda pointer: None,
    )


def library(**more):
    names = ("register_buffer", "all_reduce", "all_reduce_reg", "all_reduce_unreg", "dispose")
    return dict(
        {name: called(name) for name in names},
        meta_size=lambda: 64,
        init_custom_ar=called("init_custom_ar", 7),
        **more
    )


DISTRIBUTED = dict(
    ProcessGroup=Group,
    Backend=types.SimpleNamespace(NCCL="nccl"),
    get_backend=lambda group=None: Scenario.backend,
    get_rank=lambda group=None: 0,
    get_world_size=lambda group=None: Scenario.world,
    get_process_group_ranks=lambda group=None: list(range(Scenario.world)),
    all_gather=all_gather,
    all_gather_object=all_gather_object,
    broadcast_object_list=lambda *args, **kwargs: None,
)
CUDA = dict(
    device_count=lambda: 8,
    can_device_access_peer=lambda rank, peer: Scenario.p2p,
    is_current_stream_capturing=lambda: False,
    get_device_capability=lambda device=None: (12, 0),
    get_device_properties=lambda device=None: types.SimpleNamespace(multi_processor_count=188, name="stand-in"),
)
MODULES = {
    "torch.distributed": DISTRIBUTED,
    "pynvml": dict(
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetP2PStatus=p2p_status,
        NVML_P2P_CAPS_INDEX_NVLINK=2,
        NVML_P2P_STATUS_OK=0,
        NVMLError=type("NVMLError", (Exception,), {}),
    ),
    "sglang.srt.utils": dict(
        is_cuda=lambda: True,
        is_hip=lambda: False,
        is_musa=lambda: False,
        is_sm100_supported=lambda: False,
        cuda_device_count_stateless=lambda: 8,
        get_bool_env_var=lambda name, default="false": os.environ.get(name, default).lower() in ("1", "true"),
        log_info_on_rank0=lambda logger, text: logger.info(text),
    ),
    "sglang.srt.environ": dict(envs=Settings()),
    "sglang.srt._custom_ops": library(use_vllm_custom_allreduce=False),
    COMMUNICATORS + ".custom_all_reduce_ops": library(IS_CUSTOM_AR_AVAILABLE=True),
    COMMUNICATORS + ".cuda_wrapper": dict(CudaRTLibrary=cuda_library),
    "sglang.srt.distributed.parallel_state": dict(
        in_the_same_node_as=lambda group, source_rank=0: [Scenario.same_node] * Scenario.world
    ),
    "sglang.kernels.kernel_api_logging": dict(_KERNEL_API_LOG_LEVEL=0),
    "typing_extensions": dict(ParamSpec=typing.ParamSpec),
}
TORCH = {
    "torch": dict(
        Tensor=Tensor,
        dtype=type("dtype", (), {}),
        device=Device,
        tensor=lambda data, dtype=None, device=None: Tensor(data, len(data)),
        empty=lambda size, dtype=None, device=None: Tensor((), size),
        empty_like=lambda other: other,
        int="int",
        uint8="uint8",
        bfloat16="bfloat16",
        no_grad=lambda: contextlib.nullcontext(),
    ),
    "torch.cuda": CUDA,
    "torch.version": dict(cuda="12.8", hip=None),
    "torch.compiler": dict(is_compiling=lambda: False),
}


class StandIn(types.ModuleType):
    """A module with the attributes given, and any other made up: classes for CapWords, functions otherwise."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if self.__name__ + "." + name in MODULES:
            return importlib.import_module(self.__name__ + "." + name)
        STOOD_IN.add(self.__name__ + "." + name)
        value = type(name, (), {}) if name[:1].isupper() else called(name)
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name in REAL or name.partition(".")[0] not in ROOTS:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = StandIn(spec.name)
        module.__path__ = [os.path.join(TREE, *spec.name.split("."))] if spec.name in PACKAGES else []
        vars(module).update(MODULES.get(spec.name, {}))
        return module

    def exec_module(self, module):
        parent, _, name = module.__name__.rpartition(".")
        if parent in sys.modules:
            setattr(sys.modules[parent], name, module)


def real_torch():
    import torch
    import torch.distributed
    import torch.multiprocessing

    empty = torch.empty
    torch.empty = lambda *args, **kwargs: empty(*args, **dict(kwargs, device="cpu"))
    torch.version.cuda = "12.8"
    vars(torch.cuda).update(CUDA)
    vars(torch.distributed).update(DISTRIBUTED)


def stand_in():
    """Returns torch, real or not."""
    global ROOTS
    ROOTS = {"sglang", "sgl_kernel", "vllm", "pynvml", "amdsmi", "pymtml", "aiter", "tvm_ffi"}
    if os.environ.get("HARNESS_TORCH") == "real":
        real_torch()
    else:
        MODULES.update(TORCH)
        ROOTS.add("torch")
    if importlib.util.find_spec("typing_extensions") is None:
        ROOTS.add("typing_extensions")
    sys.meta_path.insert(0, Finder())
    sys.path.insert(0, TREE)
    import torch
    import torch.cuda
    import torch.distributed
    import torch.version

    return torch


# ---------------------------------------------------------------------------------------------------------------


class Log(logging.Handler):
    lines = []

    def emit(self, record):
        self.lines.append([record.name, record.levelname, record.getMessage()])


def plain(value):
    """For JSON, and for comparison: a tensor by its size, not by what happens to be in it."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "numel"):
        return "Tensor of %d" % value.numel()
    return value if isinstance(value, (bool, int, str, type(None))) else type(value).__name__


def attempt(function, *args, **kwargs):
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return [type(error).__name__, str(error)]


def choose(car, group, device):
    """What parallel_state of the release would call to get its communicator."""
    if not hasattr(car, "dispatch_custom_allreduce"):
        return car.CustomAllreduce
    if car.dispatch_custom_allreduce.__code__.co_argcount:
        return car.dispatch_custom_allreduce(group=group, device=device)
    return car.dispatch_custom_allreduce()


def decide(car, torch, group=None):
    """Everything that is decided for the present scenario."""
    del calls[:], Log.lines[:]
    group, device = group or Group(), torch.device("cuda:0")
    result = {"calls": calls[:]}
    chosen = attempt(choose, car, group, device)
    comm = chosen if isinstance(chosen, list) else attempt(chosen, group=group, device=device)
    result["chosen"] = chosen if isinstance(chosen, list) else getattr(chosen, "__name__", "")
    if isinstance(comm, list):
        result["raised"] = comm
    else:
        limit = vars(comm).get("max_size", 8192 * 1024)
        sizes = [0, 16, 24, 4096, 1 << 20, limit - 16, limit, limit + 16]
        result["comm"] = [type(comm).__name__, {name: plain(value) for name, value in vars(comm).items()}]
        result["should"] = [plain(attempt(comm.should_custom_ar, tensor(torch, size))) for size in sizes]
        result["odd"] = plain(attempt(comm.should_custom_ar, tensor(torch, 4096, False)))
        result["served"] = plain(attempt(comm.custom_all_reduce, tensor(torch, 4096)))
    result["calls"] = calls[:]
    result["log"] = [line for line in Log.lines if line[0] != "sgl_pcie"]
    return result


def tensor(torch, size, contiguous=True):
    if "torch" in ROOTS:
        return Tensor((), size // 2, contiguous)
    data = torch.zeros(size // 2, dtype=torch.bfloat16)
    return data if contiguous else data[::2]


def scenarios():
    everything = itertools.product((2, 4, 8), (False, True))
    for world, nvlink in everything:
        yield dict(world=world, nvlink=nvlink)
    for odd in (
        dict(world=1),
        dict(world=3),
        dict(world=6),
        dict(world=16),
        dict(same_node=False),
        dict(world=2, p2p=False),
        dict(world=4, nvlink=True, p2p=False),
        dict(backend="nccl"),
        dict(library=False),
        dict(vllm=True, nvlink=True),
        dict(vllm=True, world=2),
    ):
        yield odd


def main():
    torch = stand_in()
    logging.getLogger().addHandler(Log())
    logging.getLogger().setLevel(logging.DEBUG)
    utils = importlib.import_module(COMMUNICATORS + ".custom_all_reduce_utils")
    utils.gpu_p2p_access_check = lambda rank, peer: Scenario.p2p
    car = importlib.import_module(COMMUNICATORS + ".custom_all_reduce")
    car.CustomAllreduce.__del__ = lambda self: None  # as SGLang's monkey_patch_p2p_access_check does
    ops = [sys.modules.get("sglang.srt._custom_ops"), sys.modules.get(COMMUNICATORS + ".custom_all_reduce_ops")]
    defaults = {name: value for name, value in vars(Scenario).items() if not name.startswith("_")}
    said = [line for line in Log.lines]
    result = {"decisions": []}
    for changes in scenarios():
        for name, value in {**defaults, **changes}.items():
            setattr(Scenario, name, value)
        if hasattr(car, "custom_ar"):
            car.custom_ar = Scenario.library
        for module in filter(None, ops):
            module.use_vllm_custom_allreduce = Scenario.vllm
            module.IS_CUSTOM_AR_AVAILABLE = Scenario.library
        made = decide(car, torch)
        said += [line for line in Log.lines]
        result["decisions"].append([changes, made])
        if hasattr(utils, "can_use_custom_all_reduce_with_nvlink"):
            made["v2"] = attempt(
                utils.can_use_custom_all_reduce_with_nvlink,
                Group(),
                torch.device("cuda:0"),
                [2, 4, 6, 8],
                "CustomAllReduceV2",
            )
    for name, value in defaults.items():
        setattr(Scenario, name, value)
    if "HARNESS_GROUPS" in os.environ:  # with a communicator that serves, declines, fails or holds stock
        result["groups"] = {}
        for name in os.environ["HARNESS_GROUPS"].split(","):
            Scenario.world, Scenario.nvlink = 2, False
            result["groups"][name] = decide(car, torch, group=Group(name))
            said += [line for line in Log.lines]
    result["class"] = isinstance(car.CustomAllreduce, type), "__new__" in vars(car.CustomAllreduce)
    result["pcie_log"] = [line for line in said if line[0] == "sgl_pcie" or "sgl-pcie" in line[2]]
    result["modules"] = sorted(name for name in sys.modules if not isinstance(sys.modules[name], StandIn))
    result["torch"] = "stood in" if "torch" in ROOTS else torch.__version__
    result["stood_in"] = sorted(STOOD_IN)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
