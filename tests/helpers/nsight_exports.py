"""Write SQLite files as `nsys export` does, with the columns of two versions, also from a Kineto trace.

The columns are those of NVIDIA's schema reference: of Nsight Systems 2021.5, and of 2025.3 (schema 3.20) with the
tables and columns that its `export_schema_version_notes.txt` lists as added. Neither holds values: they are made here.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

_GRAPH_NODE = "graphNodeId"
_ON_GPU = "start end deviceId contextId streamId correlationId globalPid"
_ON_GREEN_GPU = "start end deviceId contextId greenContextId streamId correlationId globalPid"
_KERNEL = """launchType cacheConfig registersPerThread gridX gridY gridZ blockX blockY blockZ staticSharedMemory
    dynamicSharedMemory localMemoryPerThread localMemoryTotal gridId sharedMemoryExecuted graphNodeId
    sharedMemoryLimitConfig"""
_COPY = "bytes copyKind deprecatedSrcId srcKind dstKind srcDeviceId srcContextId dstDeviceId dstContextId"
_NVTX = """start end eventType rangeId category color text globalTid endGlobalTid textId domainId uint64Value int64Value
    doubleValue uint32Value int32Value floatValue jsonTextId jsonText"""

SCHEMA_2021: dict[str, str] = {
    "StringIds": "id value",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId returnValue callchainId",
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{_ON_GPU} demangledName shortName {_KERNEL}",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{_ON_GPU} {_COPY} {_GRAPH_NODE}",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_ON_GPU} value bytes {_GRAPH_NODE} memKind",
    "NVTX_EVENTS": _NVTX,
    "ThreadNames": "nameId priority globalTid",
    "TARGET_INFO_CUDA_GPU": "id name totalMemory smCount computeMajor computeMinor",
    "TARGET_INFO_SYSTEM_ENV": "globalVid devStateName name nameEnum value",
}

SCHEMA_2025: dict[str, str] = {
    **SCHEMA_2021,
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{_ON_GREEN_GPU} demangledName shortName mangledName {_KERNEL}",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{_ON_GREEN_GPU} {_COPY} migrationCause {_GRAPH_NODE} virtualAddress copyCount",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_ON_GREEN_GPU} value bytes {_GRAPH_NODE} memKind",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"{_ON_GREEN_GPU} graphId graphExecId originalGraphId",
    "OSRT_API": "start end eventClass globalTid correlationId nameId returnValue nestingLevel callchainId",
    "NVTX_EVENTS": f"{_NVTX} binaryData",
    "PROCESSES": "globalPid pid name",
    "META_DATA_EXPORT": "name value",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime localTime",
    "TARGET_INFO_GPU": """vmId id name busLocation isDiscrete l2CacheSize totalMemory memoryBandwidth clockRate smCount
        uuid chipName cuDevice maxRegistersPerBlock maxShmemPerBlock maxShmemPerBlockOptin maxShmemPerSm
        maxRegistersPerSm threadsPerWarp maxWarpsPerSm maxBlocksPerSm maxThreadsPerBlock computeMajor computeMinor""",
    "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId pid uuid numMultiprocessors",
}
del SCHEMA_2025["TARGET_INFO_CUDA_GPU"]

_TEXT_COLUMNS = frozenset(
    ("value", "name", "text", "jsonText", "busLocation", "uuid", "chipName", "utcTime", "localTime")
)

PID, TID = 4242, 4243

Row = dict[str, Any]


def global_tid(tid: int = TID, pid: int = PID) -> int:
    """Return a serialized thread id; with tid 0, that of the process."""
    return (1 << 56) | (pid << 24) | tid


class Export:
    """Rows of an export. `schema`: table → names of its columns. Lazy, as nsys: tables without rows are not made."""

    def __init__(self, schema: Mapping[str, str] = SCHEMA_2025) -> None:
        self.schema = dict(schema)
        self.rows: dict[str, list[Row]] = {}
        self._strings: dict[str, int] = {}

    def string(self, text: str) -> int:
        """Return the id of a text in StringIds."""
        if text not in self._strings:
            self._strings[text] = len(self._strings) + 1
            self.add("StringIds", id=self._strings[text], value=text)
        return self._strings[text]

    def add(self, table: str, **values: Any) -> None:
        self.rows.setdefault(table, []).append(values)

    def call(self, name: str, start: int, end: int, corr: int, tid: int = TID, pid: int = PID) -> None:
        ids = {"globalTid": global_tid(tid, pid), "correlationId": corr, "nameId": self.string(name)}
        is_driver = name.startswith("cu") and not name.startswith("cuda")
        self.add("CUPTI_ACTIVITY_KIND_RUNTIME", start=start, end=end, eventClass=int(is_driver), returnValue=0, **ids)

    def kernel(self, name: str, start: int, end: int, corr: int, **more: Any) -> None:
        fields: Row = {
            "deviceId": 0,
            "contextId": 1,
            "streamId": 7,
            "globalPid": global_tid(0),
            "demangledName": self.string(name),
            "shortName": self.string(name.partition("<")[0]),
            "registersPerThread": 32,
            **dict.fromkeys(("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"), 1),
            "staticSharedMemory": 0,
            "dynamicSharedMemory": 0,
        }
        self.add("CUPTI_ACTIVITY_KIND_KERNEL", start=start, end=end, correlationId=corr, **{**fields, **more})

    def copy(self, start: int, end: int, corr: int, size: int, **more: Any) -> None:
        """A copy from pinned memory to the device."""
        fields: Row = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": global_tid(0)}
        kinds = {"bytes": size, "copyKind": 1, "srcKind": 1, "dstKind": 2}
        self.add("CUPTI_ACTIVITY_KIND_MEMCPY", start=start, end=end, correlationId=corr, **{**fields, **kinds, **more})

    def nvtx(self, text: str | None, start: int, end: int | None, kind: int = 59, tid: int = TID, **more: Any) -> None:
        fields: Row = {"eventType": kind, "text": text, "globalTid": global_tid(tid), "domainId": 0}
        self.add("NVTX_EVENTS", start=start, end=end, **{**fields, **more})

    def gpu(self, number: int = 0, **more: Any) -> None:
        """Properties of an H200."""
        table = "TARGET_INFO_GPU" if "TARGET_INFO_GPU" in self.schema else "TARGET_INFO_CUDA_GPU"
        known: Row = {
            "id": number,
            "name": "NVIDIA H200",
            "totalMemory": 150109880320,
            "smCount": 132,
            "maxRegistersPerBlock": 65536,
            "maxRegistersPerSm": 65536,
            "maxShmemPerBlock": 49152,
            "maxShmemPerBlockOptin": 232448,
            "maxShmemPerSm": 233472,
            "threadsPerWarp": 32,
            "maxWarpsPerSm": 64,
            "maxThreadsPerBlock": 1024,
            "computeMajor": 9,
            "computeMinor": 0,
            **more,
        }
        columns = self.schema[table].split()
        self.add(table, **{key: value for key, value in known.items() if key in columns})

    def write(self, path: Path) -> Path:
        connection = sqlite3.connect(path)
        for table, rows in self.rows.items():
            columns = self.schema[table].split()
            types = (f'"{each}" {"TEXT" if each in _TEXT_COLUMNS else "INTEGER"}' for each in columns)
            key = ", PRIMARY KEY (id)" if table == "StringIds" else ""
            connection.execute(f'CREATE TABLE "{table}" ({", ".join(types)}{key})')
            marks = ", ".join("?" * len(columns))
            values = ([row.get(column) for column in columns] for row in rows)
            connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', values)
        connection.commit()
        connection.close()
        return path


_COPY_KINDS = {"HtoD": 1, "DtoH": 2, "DtoD": 8, "HtoH": 9, "PtoP": 10}
_MEMORY_KINDS = {"Pageable": 0, "Pinned": 1, "Device": 2, "Managed": 4}

CONVERTED = ("cuda_runtime", "cuda_driver", "user_annotation", "kernel", "gpu_memcpy", "gpu_memset")
"""Categories of a Kineto trace that an export can hold."""


def read_entries(path: Path) -> dict[str, Any]:
    """Read a Kineto trace, times as Decimal: a float has not all digits of ns."""
    data = path.read_bytes()
    return dict(json.loads(gzip.decompress(data) if path.suffix == ".gz" else data, parse_float=Decimal))


def keep_converted(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Kineto trace with the events that an export can hold, and the names of threads."""
    entries = [
        entry
        for entry in document["traceEvents"]
        if entry.get("cat") in CONVERTED or (entry["ph"] == "M" and entry["name"] == "thread_name")
    ]
    return {**document, "traceEvents": entries}


def export_of(document: Mapping[str, Any], schema: Mapping[str, str] = SCHEMA_2025) -> Export:
    """Convert a Kineto trace; times become ns since its first event, the process keeps its number."""
    export = Export(schema)
    entries: Iterable[Row] = [entry for entry in document["traceEvents"] if entry.get("cat") in CONVERTED]
    pid = next(entry["pid"] for entry in entries if entry["cat"] == "cuda_runtime")
    first = min(round(entry["ts"] * 1000) for entry in entries)
    for device in document["deviceProperties"]:
        warps = device["maxThreadsPerMultiprocessor"] // device["warpSize"]
        export.gpu(
            device["id"],
            name=device["name"],
            smCount=device["numSms"],
            totalMemory=device["totalGlobalMem"],
            maxWarpsPerSm=warps,
            computeMajor=device["computeMajor"],
            computeMinor=device["computeMinor"],
            maxShmemPerBlock=device["sharedMemPerBlock"],
            maxShmemPerBlockOptin=device["sharedMemPerBlockOptin"],
            maxShmemPerSm=device["sharedMemPerMultiprocessor"],
        )
    for entry in entries:
        start = round(entry["ts"] * 1000) - first
        end = start + round(entry["dur"] * 1000)
        args, name, category = entry.get("args", {}), entry["name"], entry["cat"]
        if category in ("cuda_runtime", "cuda_driver"):
            suffix = "_v7000" if category == "cuda_runtime" else ""
            export.call(f"{name}{suffix}", start, end, args.get("correlation", 0), entry["tid"], pid)
        elif category == "user_annotation":
            export.nvtx(name, start, end, tid=entry["tid"], globalTid=global_tid(entry["tid"], pid))
        else:
            _add_on_gpu(export, category, name, start, end, args, global_tid(0, pid))
    return export


def _add_on_gpu(export: Export, category: str, name: str, start: int, end: int, args: Row, process: int) -> None:
    where = {"deviceId": args["device"], "contextId": args["context"], "streamId": args["stream"], "globalPid": process}
    where["graphNodeId"] = args.get("graph node id")
    corr = args["correlation"]
    if category == "kernel":
        (gx, gy, gz), (bx, by, bz) = args["grid"], args["block"]
        shape = {"gridX": gx, "gridY": gy, "gridZ": gz, "blockX": bx, "blockY": by, "blockZ": bz}
        registers, shared = args["registers per thread"], args["shared memory"]
        sizes = {"registersPerThread": registers, "staticSharedMemory": shared // 3}
        sizes["dynamicSharedMemory"] = shared - shared // 3
        export.kernel(name, start, end, corr, **where, **shape, **sizes)
    elif category == "gpu_memcpy":
        kind, _, memory = name.removeprefix("Memcpy ").partition(" (")
        source, _, target = memory.rstrip(")").partition(" -> ")
        kinds = {"copyKind": _COPY_KINDS[kind], "srcKind": _MEMORY_KINDS[source], "dstKind": _MEMORY_KINDS[target]}
        export.copy(start, end, corr, args["bytes"], **where, **kinds)
    else:
        memory_kind = _MEMORY_KINDS.get(name.removeprefix("Memset (").rstrip(")"), 7)
        size = {"bytes": args["bytes"], "memKind": memory_kind}
        export.add("CUPTI_ACTIVITY_KIND_MEMSET", start=start, end=end, correlationId=corr, **where, **size)
