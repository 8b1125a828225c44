"""The little that is asked of the driver's own libraries: which GPU is which, and whether NVLink joins two.

Own prototypes through ctypes: no package is needed, and nothing here opens a CUDA context.
"""

import contextlib
import ctypes

_NVLINK = 2  # NVML_P2P_CAPS_INDEX_NVLINK
_TEXT = 96


class Missing(Exception):
    """A library of the driver is absent, or refused to answer."""


@contextlib.contextmanager
def _nvml():
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        raise Missing("NVML: %s" % error) from None
    _check("nvmlInit", library.nvmlInit_v2())
    try:
        yield library
    finally:
        library.nvmlShutdown()


def _check(what, code):
    if code:
        raise Missing("%s failed with code %d" % (what, code))


class _PciInfo(ctypes.Structure):
    _fields_ = [
        ("short_bus", ctypes.c_char * 16),
        ("numbers", ctypes.c_uint * 5),
        ("bus", ctypes.c_char * 32),
    ]


def gpus():
    """(bus address as in /sys, UUID) of every GPU, in NVML's order; empty without NVML."""
    try:
        with _nvml() as nvml:
            count = ctypes.c_uint()
            _check("nvmlDeviceGetCount", nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)))
            return [_gpu(nvml, index) for index in range(count.value)]
    except (Missing, AttributeError):
        return []


def _gpu(nvml, index):
    handle, info, uuid = ctypes.c_void_p(), _PciInfo(), ctypes.create_string_buffer(_TEXT)
    _check("nvmlDeviceGetHandleByIndex", nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)))
    _check("nvmlDeviceGetPciInfo", nvml.nvmlDeviceGetPciInfo_v3(handle, ctypes.byref(info)))
    _check("nvmlDeviceGetUUID", nvml.nvmlDeviceGetUUID(handle, uuid, _TEXT))
    return "%04x:%02x:%02x.0" % tuple(info.numbers[:3]), uuid.value.decode()


def all_nvlink(uuids):
    """Does NVLink join every pair of these GPUs? Raises Missing where that cannot be told."""
    try:
        with _nvml() as nvml:
            handles = [_by_uuid(nvml, uuid) for uuid in uuids]
            return all(_joined(nvml, a, b) for i, a in enumerate(handles) for b in handles[:i])
    except AttributeError as error:
        raise Missing("NVML: %s" % error) from None


def _by_uuid(nvml, uuid):
    handle = ctypes.c_void_p()
    _check("nvmlDeviceGetHandleByUUID", nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)))
    return handle


def _joined(nvml, a, b):
    status = ctypes.c_int()
    _check("nvmlDeviceGetP2PStatus", nvml.nvmlDeviceGetP2PStatus(a, b, _NVLINK, ctypes.byref(status)))
    return status.value == 0


def cuda_uuid(index):
    """UUID of CUDA's device number `index` in this process. Needs the driver, opens no context."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise Missing("CUDA driver: %s" % error) from None
    device, uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    _check("cuInit", cuda.cuInit(0))
    _check("cuDeviceGet", cuda.cuDeviceGet(ctypes.byref(device), index))
    _check("cuDeviceGetUuid", cuda.cuDeviceGetUuid(uuid, device))
    text = bytes(uuid).hex()
    return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
