"""Read the memory that each process has on GPUs, and how busy these are, from NVML; nothing where there is none."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any, NamedTuple

MAX_PROCESSES = 256


class GpuUse(NamedTuple):
    """Of one process: the GPUs that it uses, bytes on them, and the load (0 to 1) of the busiest."""

    gpus: list[int]
    memory_bytes: int | None
    load_share: float | None


class _ProcessInfo(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class GpuReader:
    """Keeps NVML open."""

    def __init__(self) -> None:
        self._nvml: Any = None
        with contextlib.suppress(OSError, AttributeError):
            nvml = ctypes.CDLL("libnvidia-ml.so.1")
            if nvml.nvmlInit_v2() == 0:
                self._nvml = nvml

    def read(self) -> dict[int, GpuUse]:
        """Read the use of all GPUs, by pid."""
        found: dict[int, GpuUse] = {}
        if self._nvml is None:
            return found
        count = ctypes.c_uint()
        self._nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        for gpu in range(count.value):
            handle, load = ctypes.c_void_p(), _Utilization()
            if self._nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(gpu), ctypes.byref(handle)):
                continue
            has_load = self._nvml.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(load)) == 0
            infos, used = (_ProcessInfo * MAX_PROCESSES)(), ctypes.c_uint(MAX_PROCESSES)
            if self._nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(used), infos):
                continue
            for info in infos[: used.value]:
                before = found.get(info.pid, GpuUse([], None, None))
                known = info.used != ctypes.c_ulonglong(-1).value  # as in a virtual machine that hides it
                memory = (before.memory_bytes or 0) + info.used if known else before.memory_bytes
                share = max(before.load_share or 0.0, load.gpu / 100) if has_load else before.load_share
                found[info.pid] = GpuUse([*before.gpus, gpu], memory, share)
        return found
