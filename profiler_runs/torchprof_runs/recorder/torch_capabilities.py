"""Report what this interpreter's torch can record, and explain in one line what is missing and what to do."""

from __future__ import annotations

import contextlib
import importlib
import os
import platform
import sys
from collections.abc import Iterator
from typing import Any

from .status_messages import escape_control_characters

SEARCH_VARIABLE = "TORCHPROF_PYTHON_SEARCH"  # where the app looked for an interpreter, in words
_KINETO_LOG_VARIABLE = "KINETO_LOG_LEVEL"
OLDEST_TORCH = (2, 1)
# Device files of GPU drivers. Asking the driver itself would initialize it and break CUDA in processes that the program
# forks.
_GPU_DEVICE_FILES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


class NoTorchError(Exception):
    """This interpreter cannot record; the message says why and what to do, in one line."""


@contextlib.contextmanager
def quiet_kineto() -> Iterator[None]:
    """Silence Kineto's log within the block, unless the user has set its level.

    Its lines would appear in the middle of the program's output. Kineto reads its log level when torch loads or when
    the first profiler is prepared; since torch 2.13 it logs "USDT: profiler_start" at a level above its errors. Its
    failures show in the trace and are reported from there (`explain_missing_gpu`).
    """
    if _KINETO_LOG_VARIABLE in os.environ:
        yield
        return
    os.environ[_KINETO_LOG_VARIABLE] = "99"
    try:
        yield
    finally:
        os.environ.pop(_KINETO_LOG_VARIABLE, None)


def explain_missing_torch() -> str:
    """Explain in one line which interpreter has no torch, where the app looked for one, and what to do."""
    searched = escape_control_characters(os.environ.get(SEARCH_VARIABLE, ""))
    return (
        f"no torch in {sys.executable}{f' ({searched})' if searched else ''}: name the interpreter that runs your "
        "program, torchprof-tui run --python PATH …"
    )


def load_torch() -> Any:
    """Import torch and check that it is new enough to record with. Raises NoTorchError."""
    try:
        with quiet_kineto():
            torch = importlib.import_module("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise NoTorchError(f"torch in {sys.executable} is broken: {error}") from error
        raise NoTorchError(explain_missing_torch()) from error
    except (ImportError, OSError) as error:
        raise NoTorchError(f"torch in {sys.executable} does not load: {str(error).splitlines()[0]}") from error
    version = _parse_version(torch)
    if version < OLDEST_TORCH:
        raise NoTorchError(
            f"torch {torch.__version__} in {sys.executable} is too old for recording: 2.1 or newer is needed"
        )
    return torch


def _parse_version(torch: Any) -> tuple[int, ...]:
    numbers = str(torch.__version__).split("+")[0].split(".")[:2]
    return tuple(int("".join(filter(str.isdigit, number)) or 0) for number in numbers)


def is_gpu_present(torch: Any) -> bool:
    """Return whether this machine seems to have a GPU that this torch was built for. Initializes no driver."""
    is_hidden = any(os.environ.get(name) in ("", "-1") for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"))
    return _has_gpu_build(torch) and not is_hidden and any(map(os.path.exists, _GPU_DEVICE_FILES))


def _has_gpu_build(torch: Any) -> bool:
    return bool(torch.version.cuda or getattr(torch.version, "hip", None))


def is_gpu_used(torch: Any) -> bool:
    """Return whether the program has used CUDA or ROCm so far."""
    return _has_gpu_build(torch) and bool(torch.cuda.is_initialized())


def is_wsl() -> bool:
    return "microsoft" in platform.release().lower()


def describe_environment(torch: Any) -> dict[str, Any]:
    """Describe torch, its devices and the machine for the manifest. Initializes no driver that the program did not."""
    devices: list[dict[str, Any]] = []
    if is_gpu_used(torch):
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            devices.append(
                {
                    "id": index,
                    "name": properties.name,
                    "memory_bytes": properties.total_memory,
                    "multiprocessors": properties.multi_processor_count,
                    "capability": f"{properties.major}.{properties.minor}",
                }
            )
    return {
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "wsl": is_wsl(),
        "activities": list_activities(torch),
        "devices": devices,
    }


def list_activities(torch: Any) -> list[str]:
    """List the activities that torch supports; only CPU if asking would initialize a driver that is not in use."""
    if is_gpu_present(torch) and not is_gpu_used(torch):
        return ["CPU"]
    return sorted(activity.name for activity in torch.profiler.supported_activities())


def choose_threads(torch: Any, profile_memory: bool) -> dict[str, Any]:
    """Choose the arguments of torch.profiler.profile that record the ops of all threads.

    By default torch records those of the thread that starts it, and serving loops and pipelines launch from threads of
    their own. Nothing for versions of torch without that option (before 2.7), and where memory is recorded: torch then
    records no allocation at all (pytorch#192290).
    """
    if profile_memory:
        return {}
    try:
        return {"experimental_config": torch._C._profiler._ExperimentalConfig(profile_all_threads=True)}
    except (AttributeError, TypeError):
        return {}


def explain_missing_allocator(torch: Any) -> str:
    """Explain why a program here cannot have a history of the CUDA allocator, and what shows its memory instead."""
    reason = "no GPU is visible here" if _has_gpu_build(torch) else f"torch {torch.__version__} is a CPU build"
    return f"it is the history of the CUDA allocator, and {reason}; --profile-memory records memory on the CPU"


def explain_missing_gpu(torch: Any, gpu_events: int, launches: int) -> str | None:
    """Explain in one line why a trace shows no GPU work, or less than it could; None if all is as expected."""
    if gpu_events:
        return None
    if is_gpu_used(torch):
        if not launches and "CUDA" not in list_activities(torch):
            return "this torch was built without CUPTI and records no kernels: install a build with CUPTI"
        if is_wsl():
            return (
                "no kernels were recorded under WSL: update the Windows driver, and allow GPU performance counters to "
                "all users in the NVIDIA Control Panel (Developer)"
            )
        if launches:
            return (
                "kernels were launched, but the driver did not allow recording: end other profilers (nsys, ncu, "
                "DCGM), or set NVreg_RestrictProfilingToAdminUsers=0 (in a container: --cap-add=SYS_ADMIN)"
            )
        return "no GPU work in the recording: record more steps or another window"
    mps = getattr(torch.backends, "mps", None)
    if mps is not None and mps.is_available():
        return "torch records no Metal kernels: the trace has only the CPU; for the GPU see torch.mps.profiler"
    if not _has_gpu_build(torch):
        present = any(map(os.path.exists, _GPU_DEVICE_FILES))
        return f"CPU only: torch {torch.__version__} is a CPU build" + (
            ", and this machine has a GPU" if present else ""
        )
    if not is_gpu_present(torch):
        return "CPU only: no GPU is visible here (nvidia-smi or rocm-smi shows what the driver sees)"
    return "CPU only: the program did not use the GPU"
