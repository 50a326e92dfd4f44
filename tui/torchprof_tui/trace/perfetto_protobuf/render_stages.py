"""Read GPU work from GpuRenderStageEvents, as torch's cuspy exporter writes it: the same args as in its JSON."""

from __future__ import annotations

import re
from typing import Any

from torchprof_tui.trace.perfetto_protobuf.field_numbers import Stage
from torchprof_tui.trace.perfetto_protobuf.sequence_tables import COMPUTE, SequenceTables, decode_text
from torchprof_tui.trace.perfetto_protobuf.wire_format import Value, WireError, parse_fields, to_double, to_signed

_STAGE_CATEGORIES = {
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Annotation": "gpu_user_annotation",
    "EventRecord": "graph_event_node",
    "HostNode": "graph_host_node",
}
"""Category of GPU work by the name of its stage."""

_ANNOTATION_CATEGORY = "gpu_user_annotation"
_OTHER_CATEGORY = "gpu_render_stage"

_QUEUE_NAME = re.compile(r"\[([0-9]+)\] (.*)", re.DOTALL)
"""How torch names the queue of a stream: with its number in front, padded with zeros."""

_EXTRA_NAMES = {"device id": "device", "context id": "context", "stream id": "stream"}
"""Extra data under other names than in JSON."""

_COMPUTE_NAMES = {"registers_per_thread": "registers per thread", "shared_mem_dynamic": "dynamic shared memory"}

_ZERO_ARGS = {
    "kernel": ("correlation", "priority", "queued", "channel", "channel_type"),
    "gpu_memcpy": ("correlation", "bytes", "channel", "channel_type"),
    "gpu_memset": ("correlation", "bytes", "value", "memory kind", "channel", "channel_type"),
    "graph_event_node": ("correlation",),
    "graph_host_node": ("correlation",),
}
"""Args that torch leaves out of .pftrace where they are zero, by category."""

_INTEGER = re.compile(r"-?[0-9]{1,19}")


def _name_category(stage: str, stage_category: int) -> str:
    """Return the category of GPU work of a stage with this name and RenderStageCategory."""
    return _STAGE_CATEGORIES.get(stage, "kernel" if stage_category == COMPUTE else _OTHER_CATEGORY)


def split_queue_name(queue: str) -> tuple[str, str]:
    """Return the tid and the name of the lane of a queue."""
    match = _QUEUE_NAME.fullmatch(queue)
    return (str(int(match[1])), match[2]) if match else (queue, queue)


def read_stage(event: bytes, tables: SequenceTables) -> tuple[dict[str, Any], int]:
    """Read a GpuRenderStageEvent as an entry without `ts` and `dur`; and its duration, ns. Raises WireError."""
    fields: dict[int, Value] = {}
    extra: dict[str, Any] = {}
    for number, value in parse_fields(event):
        if number == Stage.EXTRA and isinstance(value, bytes):
            texts = dict(parse_fields(value))
            extra[decode_text(texts.get(1, b""))] = _parse_number(decode_text(texts.get(2, b"")))
        else:
            fields[number] = value
    stage_iid, queue_iid = _integer(fields, Stage.STAGE_IID), _integer(fields, Stage.QUEUE_IID)
    stage = tables.specifications.get(stage_iid, "")
    category = _name_category(stage, tables.stage_categories.get(stage_iid, 0))
    gpu = to_signed(_integer(fields, Stage.GPU))
    tid, _ = split_queue_name(tables.specifications.get(queue_iid, str(queue_iid)))
    name = tables.names.get(_integer(fields, Stage.NAME_IID))
    if name is None:
        name = decode_text(fields[Stage.NAME]) if Stage.NAME in fields else stage
        if category == "graph_host_node" and "host fn" in extra:
            name = f"{stage}: {extra['host fn']}"
    launch = fields.get(Stage.LAUNCH)
    args = _build_args(category, gpu, tid, extra, _read_launch(launch, tables) if isinstance(launch, bytes) else {})
    entry = {"ph": "X", "cat": category, "name": name, "pid": str(gpu), "tid": tid, "args": args}
    return entry, _integer(fields, Stage.DURATION)


def _build_args(category: str, gpu: int, tid: str, extra: dict[str, Any], launch: dict[str, Any]) -> dict[str, Any]:
    args: dict[str, Any] = {}
    if category != _ANNOTATION_CATEGORY:
        args["device"] = gpu
        if tid.isdecimal():
            args["stream"] = int(tid)
    for name, value in extra.items():
        if name in _EXTRA_NAMES:
            if category == _ANNOTATION_CATEGORY or name == "device id":
                continue
            if name == "stream id" and value != args.setdefault("stream", value):
                args["original_stream"] = value
            elif name == "context id":
                args["context"] = value
        else:
            args[name] = value
    if "device id" in extra:
        for name in _ZERO_ARGS.get(category, ()):
            args.setdefault(name, 0)
    return {**args, **launch}


def _read_launch(launch: bytes, tables: SequenceTables) -> dict[str, Any]:
    """Read a ComputeKernelLaunch. Raises WireError."""
    args: dict[str, Any] = {}
    for number, value in parse_fields(launch):
        if not isinstance(value, bytes):
            continue
        if number in (1, 2):
            sizes = dict(parse_fields(value))
            args["grid" if number == 1 else "block"] = [sizes.get(axis, 0) for axis in (1, 2, 3)]
        elif number == 3:
            name, number_or_text = _read_launch_arg(value, tables)
            args[_COMPUTE_NAMES.get(name, name)] = number_or_text
    if "block" in args:
        args.setdefault("registers per thread", 0)
    return args


def _read_launch_arg(data: bytes, tables: SequenceTables) -> tuple[str, Any]:
    name = ""
    result: Any = None
    for number, value in parse_fields(data):
        if isinstance(value, bytes):
            name, result = (decode_text(value), result) if number == 2 else (name, decode_text(value))
        elif number == 1:
            name = tables.compute_args.get(value, f"arg {value}")
        elif number in (3, 4):
            result = to_signed(value) if number == 3 else value
        elif number == 5:
            result = to_double(value)
        elif number == 7:
            result = tables.strings.get(value, f"text {value}")
    return name, result


def _parse_number(text: str) -> Any:
    """Convert text that is an integer, as all extra data is written."""
    return int(text) if _INTEGER.fullmatch(text) else text


def _integer(fields: dict[int, Value], number: int) -> int:
    value = fields.get(number, 0)
    if not isinstance(value, int):
        raise WireError(f"field {number} is no number")
    return value
