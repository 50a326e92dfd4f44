"""Read the top-level keys of a trace file into typed values, once: devices, rank, versions, what was recorded.

Everything else reads `Trace.metadata` and needs no checks of its own: a value of another type or out of its range is
absent there, and is reported as a problem of the file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, TypeVar

from torchprof_tui.trace.core.bounded_json import dump_bounded
from torchprof_tui.trace.core.problems import excerpt
from torchprof_tui.trace.core.records import record

MAX_DEVICE = 2**31 - 1  # largest device number, as for the events

_MAX_COUNT = 2**31 - 1  # largest rank and world size
_MAX_BASE_TIME = 2**62  # largest `baseTimeNanoseconds` (ns since the epoch: the year 2116)

_MAX_PROPERTY = 2**62  # largest number of a device property; the largest in real traces is the bytes of a GPU's memory
_MAX_DEVICES = 4096  # most entries of `deviceProperties` that are read; a node has at most some twenty
_MAX_DIGITS = 10  # most digits of a number that is text: some launchers write the rank so
_MAX_TEXT_LENGTH = 200  # most characters of a device name or a version; the longest real ones have some fifty

_PROPERTIES = (
    *("computeMajor", "computeMinor", "numSms", "warpSize", "maxThreadsPerBlock", "maxThreadsPerMultiprocessor"),
    *("regsPerBlock", "regsPerMultiprocessor", "sharedMemPerBlock", "sharedMemPerBlockOptin"),
    *("sharedMemPerMultiprocessor", "maxSharedMemoryPerMultiProcessor"),
)
"""Properties that are numbers and used (`analysis/kernel/occupancy.py`)."""

Container = TypeVar("Container", dict[str, Any], list[Any])

_RECORDING_FLAGS = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
_TORCH_VERSION_KEYS = ("pytorch_version", "torch_version")
_CUDA_VERSION_KEY = "cuda_runtime_version"


@record
class DeviceProperties:
    """One device of `deviceProperties`. `id`: its number, by default its position in the list; `name`: "" if unknown.

    `numbers`: its other numbers, those of _PROPERTIES that the file has, integers from 0 on.
    """

    id: int
    name: str
    numbers: Mapping[str, int] = field(default_factory=dict)


@record
class TraceMetadata:
    """What the top-level keys of a file say about the whole trace; None or "" for what they do not say.

    `base_time`: ns since the epoch of the file's time 0, 0 if unknown. `recorded`: those of the profiler's flags
    (`record_shapes`, `with_stack`, …) that were set. `cuda_version`: 1000 · major + 10 · minor.
    """

    devices: tuple[DeviceProperties, ...] = ()
    rank: int | None = None
    world_size: int | None = None
    base_time: int = 0
    recorded: frozenset[str] = frozenset()
    torch_version: str = ""
    cuda_version: int | None = None


def read_trace_metadata(header: Mapping[str, Any]) -> tuple[TraceMetadata, list[str]]:
    """Read the metadata from the top-level keys of a file; also returns each value that cannot be used, quoted."""
    reader = _Reader()
    info = reader.read_container("distributedInfo", header.get("distributedInfo"), dict)
    metadata = TraceMetadata(
        devices=_read_devices(header.get("deviceProperties"), reader),
        rank=reader.read_integer("distributedInfo.rank", info.get("rank"), _MAX_COUNT),
        world_size=reader.read_integer("distributedInfo.world_size", info.get("world_size"), _MAX_COUNT),
        base_time=reader.read_integer("baseTimeNanoseconds", header.get("baseTimeNanoseconds"), _MAX_BASE_TIME) or 0,
        recorded=frozenset(key for key in _RECORDING_FLAGS if reader.read_flag(key, header.get(key))),
        torch_version=next(filter(None, (reader.read_text(key, header.get(key)) for key in _TORCH_VERSION_KEYS)), ""),
        cuda_version=reader.read_integer(_CUDA_VERSION_KEY, header.get(_CUDA_VERSION_KEY), _MAX_COUNT),
    )
    return metadata, reader.unusable


def read_device_names(devices: Sequence[DeviceProperties]) -> dict[int, str]:
    """Map device numbers to names, "" where a device has none."""
    return {device.id: device.name for device in devices}


def _read_devices(value: Any, reader: _Reader) -> tuple[DeviceProperties, ...]:
    devices = []
    for index, listed in enumerate(reader.read_container("deviceProperties", value, list)[:_MAX_DEVICES]):
        key = f"deviceProperties[{index}]"
        if not isinstance(listed, dict):
            reader.add_unusable(key, listed)
            continue
        properties: Mapping[str, Any] = listed
        number = reader.read_integer(f"{key}.id", properties.get("id"), MAX_DEVICE)
        text = reader.read_text(f"{key}.name", properties.get("name"))
        numbers = {}
        for name in _PROPERTIES:
            value_of_name = reader.read_integer(f"{key}.{name}", properties.get(name), _MAX_PROPERTY)
            if value_of_name is not None:
                numbers[name] = value_of_name
        devices.append(DeviceProperties(index if number is None else number, text, numbers))
    return tuple(devices)


class _Reader:
    """Converts values of unknown types, and lists those that are present but cannot be used."""

    def __init__(self) -> None:
        self.unusable: list[str] = []

    def read_integer(self, key: str, value: Any, largest: int) -> int | None:
        """Read an integer of 0..largest, also from text or a float; None for anything else."""
        number: int | None = None
        if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= _MAX_DIGITS:
            number = int(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            number = value
        elif isinstance(value, float) and math.isfinite(value) and value.is_integer():
            number = int(value)
        if number is not None and 0 <= number <= largest:
            return number
        # -1 is what writers put for "unknown".
        if value is not None and value != -1:
            self.add_unusable(key, value)
        return None

    def read_flag(self, key: str, value: Any) -> bool:
        """Read a flag: true or false, 1 or 0; false for anything else."""
        return value if isinstance(value, bool) else self.read_integer(key, value, 1) == 1

    def read_text(self, key: str, value: Any) -> str:
        """Read a text, shortened; numbers become text. "" for anything else."""
        if isinstance(value, str):
            return value[:_MAX_TEXT_LENGTH]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return str(value)
        if value is not None:
            self.add_unusable(key, value)
        return ""

    def read_container(self, key: str, value: Any, kind: type[Container]) -> Container:
        """Read an object or a list; an empty one for anything else."""
        if isinstance(value, kind):
            return value
        if value is not None:
            self.add_unusable(key, value)
        return kind()

    def add_unusable(self, key: str, value: Any) -> None:
        self.unusable.append(f"{excerpt(key)}: {excerpt(dump_bounded(value))}")
