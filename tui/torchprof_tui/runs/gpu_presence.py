"""Detect whether this machine has a GPU that torch could use, without importing torch."""

from __future__ import annotations

import glob
from collections.abc import Mapping

_DEVICE_FILES = (
    "/dev/nvidia[0-9]*",
    "/dev/kfd",  # AMD
    "/dev/dxg",  # Windows' GPUs in WSL
    "/dev/davinci[0-9]*",  # Ascend
)
_VISIBILITY_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")

WORKLOADS_FOR_GPUS: Mapping[str, str] = {"streams": "", "graph_replay": "--eager"}
"""Workloads that need a GPU → the argument with which they do without; "" if there is none."""


def is_gpu_present(environment: Mapping[str, str]) -> bool:
    """Return whether there is a device file of a GPU, and `environment` does not hide all of them."""
    if any(environment.get(variable, "0").strip() in ("", "-1") for variable in _VISIBILITY_VARIABLES):
        return False
    return any(glob.glob(pattern) for pattern in _DEVICE_FILES)
