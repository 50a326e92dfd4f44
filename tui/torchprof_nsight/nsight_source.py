"""Open an Nsight Systems export as a source of Kineto text, which is decoded while it is written.

The text is no file of its own: it passes through the decoder, which stores it in the cache as it does for a pipe. So
details, search and export of events work as for every other trace, and the export is not needed again.

| table | becomes |
|---|---|
| CUPTI_ACTIVITY_KIND_RUNTIME | `cuda_runtime` and `cuda_driver` calls on CPU threads |
| NVTX_EVENTS | `user_annotation`; marks are instants, ranges that never ended have no end |
| CUPTI_ACTIVITY_KIND_KERNEL, MEMCPY, MEMSET | `kernel`, `gpu_memcpy`, `gpu_memset` on streams, with Kineto's args |
| CUPTI_ACTIVITY_KIND_GRAPH_TRACE | one `kernel` for each replay, where single nodes were not recorded |
| CUPTI_ACTIVITY_KIND_SYNCHRONIZATION | `cuda_sync` of calls that block (waits of streams for events: see the calls) |
| ThreadNames, PROCESSES | metadata entries |

Times are ns since the session began; the text has them as microseconds with three decimals.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from torchprof_nsight.export_file import MAX_TEXT, ExportFile
from torchprof_nsight.extension import NO_TABLE, UNREAD_TABLE, WHOLE_GRAPHS
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.problems import DAMAGED_TABLE, UNREADABLE_ENTRY, Problem
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.sources.source import PieceStream, Source

_PID_SHIFT, _ID_MASK = 24, (1 << 24) - 1

_CORRELATION_SHIFT = 32
"""CUPTI counts correlations from 1 in each process, in 32 bits; above them comes the number of the process."""


@record
class ProcessIds:
    """Numbers of the processes of one export.

    `processes`: number of each process by its serialized id without the thread. `gpus`: the GPU by pid and CUDA
    device, where the export has it: a process may see GPU 3 as its device 0.
    """

    processes: dict[int, int]
    gpus: dict[tuple[int, int], int]

    def unique_correlation(self, global_id: int, correlation: int) -> int:
        """Return the correlation as a number that no other process of the export uses."""
        return correlation + (self.processes.get(global_id >> _PID_SHIFT, 0) << _CORRELATION_SHIFT)


def pid_of(global_id: int) -> int:
    """Return the process of a serialized thread or process id."""
    return (global_id >> _PID_SHIFT) & _ID_MASK


def tid_of(global_id: int) -> int:
    """Return the thread of a serialized thread id."""
    return global_id & _ID_MASK


RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
NVTX = "NVTX_EVENTS"

EVENT_TABLES = (RUNTIME, NVTX, KERNEL, MEMCPY, MEMSET, GRAPH, SYNC)

_COPY_KINDS = dict(enumerate(("HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"), 1))
"""CUpti_ActivityMemcpyKind."""

_MEMORY_KINDS = dict(enumerate(("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static")))
"""Of ENUM_CUDA_MEM_KIND, which exports carry; CUPTI's own numbers are one higher."""

_NVTX_RANGES = frozenset((35, 37, 59, 60, 71, 72))
_NVTX_MARKS = frozenset((34, 70))
_NVTX_DOMAIN = 75
"""Of ENUM_NSYS_EVENT_TYPE: ranges that were pushed or started, with and without an end; marks; names of domains."""

_SYNC_NAMES = {"Stream": "Stream Sync", "Event": "Event Sync", "Device": "Context Sync", "Ctx": "Context Sync"}
_BLOCKING_CALL = re.compile(r"cu(?:da)?(Stream|Event|Device|Ctx)Synchronize")
"""Kineto's names by the call that blocks. `syncType` cannot tell them apart: nsys 2025.3 writes that of a wait for an
event into the rows of `cudaStreamSynchronize`."""

_NO_STREAM = 2**32 - 1

_API_VERSION = re.compile(r"_v[0-9]{4,5}$")
"""CUPTI adds the version in which an entry point of the runtime came: `cudaLaunchKernel_v7000`."""

_SPAN = '  {\n    "ph": "X", "cat": "%s", "name": %s, "pid": %d, "tid": %d,\n    "ts": %d.%03d, "dur": %d.%03d'
_API = _SPAN + ',\n    "args": {\n      "correlation": %d\n    }\n  },\n'
_GPU = (
    _SPAN
    + ',\n    "args": {\n      "device": %d, "context": %d,\n      "stream": %d, "correlation": %d%s\n    }\n  },\n'
)
_FOOTPRINT = (
    ',\n      "registers per thread": %d,\n      "shared memory": %d,\n'
    '      "grid": [%d, %d, %d],\n      "block": [%d, %d, %d]'
)
_NODE = ',\n      "graph node id": %d'
_INSTANT = (
    '  {\n    "ph": "%s", "cat": "user_annotation", "name": %s, "pid": %d, "tid": %d,\n    "ts": %d.%03d%s\n  },\n'
)
_METADATA = (
    '  {\n    "name": "%s", "ph": "M", "ts": 0, "pid": %d, "tid": %d,\n    "args": {\n      "name": %s\n    }\n  },\n'
)

_MAX_ID = 2**40


class KinetoText:
    """Writes the text of one export. `unreadable`: rows by table that have no usable time or number."""

    def __init__(self, export: ExportFile) -> None:
        self.unreadable: dict[str, int] = {}
        self._export = export
        self._strings = export.read_strings()
        self._quoted: dict[int, str] = {}
        self._api: dict[int, tuple[str, str]] = {}
        self._domains: dict[int, str] = {}
        self._blocking: dict[int, str] = {}
        self._ids = ProcessIds({}, {})

    def write(self, header: dict[str, Any]) -> Iterator[str]:
        """Yield the text in pieces. `header`: the keys before the events."""
        yield json.dumps(header)[:-1] + ',\n  "traceEvents": [\n'
        export = self._export
        ids = {each for rows in export.fetch(RUNTIME, ("globalTid",)) for (each,) in rows}
        processes = sorted({each >> _PID_SHIFT for each in ids if isinstance(each, int)})
        self._ids = ProcessIds({key: number for number, key in enumerate(processes)}, _read_gpus(export))
        api_columns = ("start", "end", "globalTid", "correlationId", "nameId")
        yield from self._write_table(RUNTIME, api_columns, self._format_call)
        has_domains = export.has(NVTX, "domainId", "eventType")
        for rows in export.fetch(NVTX, ("eventType", "domainId", "text", "textId")) if has_domains else ():
            for kind, domain, text, text_id in rows:
                if kind == _NVTX_DOMAIN and isinstance(domain, int):
                    self._domains[domain] = self._quote_text(text, text_id)
        nvtx_columns = ("start", "end", "eventType", "text", "textId", "globalTid", "domainId")
        yield from self._write_table(NVTX, nvtx_columns, self._format_nvtx)
        on_gpu = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "graphNodeId")
        sizes = ("registersPerThread", "staticSharedMemory", "dynamicSharedMemory")
        shape = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
        names = ("demangledName", "shortName")
        yield from self._write_table(KERNEL, (*on_gpu, *names, *sizes, *shape), self._format_kernel)
        yield from self._write_table(MEMCPY, (*on_gpu, "copyKind", "srcKind", "dstKind", "bytes"), self._format_memcpy)
        yield from self._write_table(MEMSET, (*on_gpu, "memKind", "bytes"), self._format_memset)
        yield from self._write_table(GRAPH, (*on_gpu, "graphId"), self._format_graph)
        yield from self._write_table(SYNC, on_gpu, self._format_sync)
        for thread, name in export.read_all("ThreadNames", ("globalTid", "nameId")):
            if isinstance(thread, int) and isinstance(name, int) and name in self._strings:
                yield _METADATA % ("thread_name", pid_of(thread), tid_of(thread), self._quote(name))
        for process, name in export.read_all("PROCESSES", ("globalPid", "name")):
            if isinstance(process, int) and isinstance(name, str):
                yield _METADATA % ("process_name", pid_of(process), 0, json.dumps(name[:MAX_TEXT]))
        yield '  {\n    "name": "process_labels", "ph": "M", "ts": 0, "pid": 0, "tid": 0\n  }\n  ]\n}\n'

    def _write_table(
        self, table: str, columns: tuple[str, ...], format_row: Callable[[tuple[Any, ...]], str]
    ) -> Iterator[str]:
        for rows in self._export.fetch(table, columns):
            yield self._format_rows(table, rows, format_row)

    def _format_rows(
        self, table: str, rows: list[tuple[Any, ...]], format_row: Callable[[tuple[Any, ...]], str]
    ) -> str:
        """Format rows, without those that no nsys wrote; halves are formatted apart until only such rows are left."""
        try:
            return "".join(map(format_row, rows))
        except (TypeError, ValueError, OverflowError):
            if len(rows) == 1:
                self.unreadable[table] = self.unreadable.get(table, 0) + 1
                return ""
            half = len(rows) // 2
            return self._format_rows(table, rows[:half], format_row) + self._format_rows(table, rows[half:], format_row)

    def _format_call(self, row: tuple[Any, ...]) -> str:
        start, end, thread, correlation, name = row
        if name not in self._api:  # its category and its name as JSON, as Kineto has them
            call = self._strings.get(name, f"call {_integer(name)}")
            is_driver = call.startswith("cu") and not call.startswith("cuda")
            text = json.dumps(call if is_driver else _API_VERSION.sub("", call))
            self._api[name] = ("cuda_driver" if is_driver else "cuda_runtime", text)
        times = _split_times(start, end)
        correlation = self._ids.unique_correlation(thread, _integer(correlation or 0))
        blocking = _BLOCKING_CALL.match(self._strings.get(name, ""))
        if blocking:
            self._blocking[correlation] = _SYNC_NAMES[blocking[1]]
        return _API % (*self._api[name], pid_of(thread), tid_of(thread), *times, correlation)

    def _format_nvtx(self, row: tuple[Any, ...]) -> str:
        start, end, kind, text, text_id, thread, domain = row
        if kind not in _NVTX_RANGES and kind not in _NVTX_MARKS:
            return ""  # the name of a domain or a category
        name = self._quote_text(text, text_id)
        thread = _integer(thread or 0)
        times = _split_times(start, start if end is None else end)
        named = self._domains.get(domain) if domain else None
        args = "" if named is None else f',\n    "args": {{\n      "domain": {named}\n    }}'
        if end is None or kind in _NVTX_MARKS:
            phase = "i" if kind in _NVTX_MARKS else "B"
            return _INSTANT % (phase, name, pid_of(thread), tid_of(thread), *times[:2], args)
        return _SPAN % ("user_annotation", name, pid_of(thread), tid_of(thread), *times) + args + "\n  },\n"

    def _format_kernel(self, row: tuple[Any, ...]) -> str:
        demangled, short, registers, static, dynamic = row[8:13]
        if registers is None or row[13] is None:
            footprint = ""
        else:
            footprint = _FOOTPRINT % (registers, (static or 0) + (dynamic or 0), *row[13:19])
        return self._format_on_gpu(row, "kernel", self._quote(short if demangled is None else demangled), footprint)

    def _format_memcpy(self, row: tuple[Any, ...]) -> str:
        kind, source, target, size = row[8:12]
        memory = f"{_MEMORY_KINDS.get(source, 'Unknown')} -> {_MEMORY_KINDS.get(target, 'Unknown')}"
        name = f'"Memcpy {_COPY_KINDS.get(kind, "Unknown")} ({memory})"'
        more = "" if size is None else f',\n      "bytes": {_integer(size)}'
        return self._format_on_gpu(row, "gpu_memcpy", name, more)

    def _format_memset(self, row: tuple[Any, ...]) -> str:
        kind, size = row[8:10]
        more = "" if size is None else f',\n      "bytes": {_integer(size)}'
        return self._format_on_gpu(row, "gpu_memset", f'"Memset ({_MEMORY_KINDS.get(kind, "Unknown")})"', more)

    def _format_graph(self, row: tuple[Any, ...]) -> str:
        number = f" {_integer(row[8])}" if row[8] is not None else ""
        return self._format_on_gpu(row, "kernel", f'"CUDA graph{number} (its kernels were not recorded)"', "")

    def _format_sync(self, row: tuple[Any, ...]) -> str:
        stream, correlation, process = row[4:7]
        kind = self._blocking.get(self._ids.unique_correlation(process or 0, _integer(correlation or 0)))
        if kind is None:
            return ""
        on_stream = (*row[:4], -1 if stream in (None, _NO_STREAM) else stream, *row[5:])
        return self._format_on_gpu(on_stream, "cuda_sync", f'"{kind}"', f',\n      "cuda_sync_kind": "{kind}"')

    def _format_on_gpu(self, row: tuple[Any, ...], category: str, name: str, more: str) -> str:
        start, end, device, context, stream, correlation, process, node = row[:8]
        process = 0 if process is None else process
        device = _integer(device or 0)
        device = self._ids.gpus.get((pid_of(process), device), device)
        stream = _integer(stream or 0)
        times = _split_times(start, end)
        correlation = self._ids.unique_correlation(process, _integer(correlation or 0))
        more += _NODE % node if node else ""
        return _GPU % (category, name, device, stream, *times, device, context or 0, stream, correlation, more)

    def _quote(self, number: Any) -> str:
        """Return a text of StringIds as JSON."""
        quoted = self._quoted.get(number)
        if quoted is None:
            text = self._strings.get(number)
            quoted = json.dumps(f"name {_integer(number)}" if text is None else text)
            self._quoted[number] = quoted
        return quoted

    def _quote_text(self, text: Any, text_id: Any) -> str:
        """Return the text of an NVTX event as JSON: in the row, else in StringIds."""
        if isinstance(text, str):
            return json.dumps(text[:MAX_TEXT])
        return '""' if text_id is None else self._quote(text_id)


def _read_gpus(export: ExportFile) -> dict[tuple[int, int], int]:
    """Read the GPU by pid and CUDA device."""
    rows = export.read_all("TARGET_INFO_CUDA_DEVICE", ("pid", "cudaId", "gpuId"))
    return {(row[0], row[1]): row[2] for row in rows if all(isinstance(each, int) for each in row)}


def _split_times(start: Any, end: Any) -> tuple[int, int, int, int]:
    """Return start and duration, each as µs and ns. Raises ValueError for what is no time."""
    if type(start) is not int or type(end) is not int or start < 0:
        raise ValueError("no time")
    return *divmod(start, 1000), *divmod(max(end - start, 0), 1000)


def _integer(value: Any) -> int:
    """Return an integer. Raises TypeError for anything else."""
    if type(value) is not int:
        raise TypeError("no integer")
    return value


HEADER_KEY = "nsightSystems"  # key of the text that says what it was made from

_UNREAD_TABLES = ("OSRT_API", "CUDNN_EVENTS", "CUBLAS_EVENTS", "GPU_METRICS", "SCHED_EVENTS", "COMPOSITE_EVENTS")
"""Tables with events that are not shown, counted where they have rows."""

_GPU_TABLES = ("TARGET_INFO_GPU", "TARGET_INFO_CUDA_GPU")  # the properties of devices; the second is of 2021

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
        export, found = self._export, super().problems
        found = [*found, *(Problem(DAMAGED_TABLE, 1, line) for line in export.damage)]
        for table, count in self._text.unreadable.items():
            found.append(Problem(UNREADABLE_ENTRY, count, f"in {table}: a row without a usable time or number"))
        if NVTX not in export.tables:
            found.append(Problem(NO_TABLE, 1, f"{NVTX}: nsys profile --trace=cuda,nvtx records ranges"))
        if GRAPH in export.tables:
            advice = "nsys profile --cuda-graph-trace=node records each kernel"
            found.append(Problem(WHOLE_GRAPHS, export.count_rows(GRAPH), advice))
        unread = {table: count for table in _UNREAD_TABLES if (count := export.count_rows(table))}
        if unread:
            named = ", ".join(f"{table} ({count:,})" for table, count in unread.items())
            found.append(Problem(UNREAD_TABLE, sum(unread.values()), named))
        return found


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
