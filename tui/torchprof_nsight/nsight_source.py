"""Open an Nsight Systems export as a source of Kineto text, which is decoded while it is written.

The text is no file of its own: it passes through the decoder, which stores it in the cache as it does for a pipe. So
details, search and export of events work as for every other trace, and the export is not needed again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torchprof_nsight.export_file import ExportFile
from torchprof_nsight.extension import NO_TABLE, UNREAD_TABLE, WHOLE_GRAPHS
from torchprof_nsight.kineto_text import EVENT_TABLES, GRAPH, KERNEL, MEMCPY, NVTX, RUNTIME, KinetoText
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.problems import DAMAGED_TABLE, UNREADABLE_ENTRY, Problem
from torchprof_tui.trace.sources.source import PieceStream, Source

HEADER_KEY = "nsightSystems"
"""Key of the text that says what it was made from."""

_UNREAD_TABLES = ("OSRT_API", "CUDNN_EVENTS", "CUBLAS_EVENTS", "GPU_METRICS", "SCHED_EVENTS", "COMPOSITE_EVENTS")
"""Tables with events that are not shown, counted where they have rows."""

_GPU_TABLES = ("TARGET_INFO_GPU", "TARGET_INFO_CUDA_GPU")
"""The properties of devices; the second is of 2021."""

_DEVICE_KEYS = {
    "totalMemory": "totalGlobalMem",
    "computeMajor": "computeMajor",
    "computeMinor": "computeMinor",
    "maxThreadsPerBlock": "maxThreadsPerBlock",
    "maxRegistersPerBlock": "regsPerBlock",
    "threadsPerWarp": "warpSize",
    "maxShmemPerBlock": "sharedMemPerBlock",
    "maxShmemPerBlockOptin": "sharedMemPerBlockOptin",
    "maxShmemPerSm": "sharedMemPerMultiprocessor",
    "maxRegistersPerSm": "regsPerMultiprocessor",
    "smCount": "numSms",
}
"""Column → key of `deviceProperties`."""


class NsightSource(Source):
    """Source of the Kineto text of an export. `problems`: those of the tables as well."""

    def __init__(self, spec: str, export: ExportFile) -> None:
        self._export = export
        self._text = KinetoText(export)
        pieces = (piece.encode("utf-8", "replace") for piece in self._text.write(_build_header(export)))
        super().__init__(spec, PieceStream(pieces, self._close_export))

    def _close_export(self) -> None:
        with contextlib.suppress(Exception):
            self._export.close()

    @property
    def problems(self) -> list[Problem]:
        return [*super().problems, *self._list_table_problems()]

    def _list_table_problems(self) -> Iterator[Problem]:
        export = self._export
        for line in export.damage:
            yield Problem(DAMAGED_TABLE, 1, line)
        for table, count in self._text.unreadable.items():
            yield Problem(UNREADABLE_ENTRY, count, f"in {table}: a row without a usable time or number")
        if NVTX not in export.tables:
            yield Problem(NO_TABLE, 1, f"{NVTX}: nsys profile --trace=cuda,nvtx records ranges")
        if GRAPH in export.tables:
            yield Problem(
                WHOLE_GRAPHS, export.count_rows(GRAPH), "nsys profile --cuda-graph-trace=node records each kernel"
            )
        unread = {table: count for table in _UNREAD_TABLES if (count := export.count_rows(table))}
        if unread:
            named = ", ".join(f"{table} ({count:,})" for table, count in unread.items())
            yield Problem(UNREAD_TABLE, sum(unread.values()), named)


def open_nsight_export(source: Source) -> NsightSource:
    """Open the export that a source is, and close the source. Raises TraceError where it cannot be read."""
    path, spec = source.plain_path, source.name
    source.close()
    if path is None:
        raise TraceError(f"{spec}: an SQLite database, which opens only as a plain file on this machine: copy it here")
    export = ExportFile(spec, path)
    if not any(table in export.tables for table in (RUNTIME, KERNEL, MEMCPY, NVTX)):
        export.close()
        raise TraceError(
            f"{spec}: an Nsight Systems export with no CUDA or NVTX events: nsys profile --trace=cuda,nvtx records them"
        )
    for table in EVENT_TABLES:
        if table in export.tables and not export.has(table, "start"):
            export.close()
            raise TraceError(f"{spec}: an Nsight Systems export of an unknown version: {table} has no column start")
    return NsightSource(spec, export)


def _build_header(export: ExportFile) -> dict[str, Any]:
    """Build the keys before the events from the tables about the machine."""
    versions = {
        name: value
        for name, value in export.read_all("META_DATA_EXPORT", ("name", "value"))
        if isinstance(name, str) and isinstance(value, str) and "VERSION" in name
    }
    header: dict[str, Any] = {"schemaVersion": 1, HEADER_KEY: versions, "deviceProperties": _read_devices(export)}
    for (began,) in export.read_all("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))[:1]:
        if isinstance(began, int) and 0 < began < 2**62:
            header["baseTimeNanoseconds"] = began
    for name, value in export.read_all("TARGET_INFO_SYSTEM_ENV", ("name", "value")):
        if name == "Hostname" and isinstance(value, str):
            header["host_name"] = value
    return header


def _read_devices(export: ExportFile) -> list[dict[str, Any]]:
    """Return the GPUs as `deviceProperties` lists them."""
    table = next((table for table in _GPU_TABLES if table in export.tables), _GPU_TABLES[0])
    devices = []
    columns = ("id", "name", "maxWarpsPerSm", *_DEVICE_KEYS)
    for number, name, warps, *values in export.read_all(table, columns, limit=1024):
        if not isinstance(number, int):
            continue
        device: dict[str, Any] = {"id": number, "name": name if isinstance(name, str) else ""}
        known = zip(_DEVICE_KEYS.values(), values, strict=True)
        device |= {
            key: value for key, value in known if isinstance(value, int) and (value > 0 or key == "computeMinor")
        }
        if isinstance(warps, int) and warps > 0 and "warpSize" in device:
            device["maxThreadsPerMultiprocessor"] = warps * device["warpSize"]
        devices.append(device)
    return devices
