"""Say what a file is that is no trace, and which command turns it into one, by its content.

Only the file's name tells some reports of Nsight Systems apart; it is looked at last, and for binary data alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from torchprof_tui.trace.core.errors import quote_file
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.core.problems import excerpt
from torchprof_tui.trace.json_text.repair import parse_values

_PROBED_BYTES = 4096

NSIGHT_REPORT = "a report of Nsight Systems; nsys export --type sqlite FILE writes one that opens"
_NSIGHT_STREAM = (
    "a stream of Nsight Systems that was not imported; QdstrmImporter -i FILE writes a report, and "
    "nsys export --type sqlite a file that opens"
)
_NCU_REPORT = (
    "a report of Nsight Compute, which has metrics of single kernels and no timeline; ncu --import FILE prints it"
)
_XPLANE = (
    "an XPlane protobuf of JAX or TensorFlow; the .trace.json.gz beside it opens, and "
    "jax.profiler.start_trace(…, create_perfetto_trace=True) writes another that does"
)
_MEMORY_SNAPSHOT = (
    "a memory snapshot of torch.cuda.memory; torchprof-tui FILE shows it, torchprof-tui memory FILE prints it, and a "
    "trace recorded with profile_memory=True opens here (M: the memory screen)"
)
_SPEEDSCOPE = "a profile for speedscope.app, which shows it; py-spy record --format chrometrace writes one that opens"
_CHAKRA = (
    "a Chakra execution trace, which has operators without times; prof.export_chrome_trace() writes a trace that opens"
)
_MEMORY_TIMELINE = "a page of export_memory_timeline(); prof.export_chrome_trace() writes a trace that opens"

_MAGIC = {
    b"PK\x03\x04": "a zip archive; unpack it first",
    b"BZh": "bzip2 data; unpack it first",
    b"\x1f\x8b": "gzip data compressed twice; unpack it once",
    b"SQLite format 3": "an SQLite database, as Nsight Systems exports, which opens as a plain file on this machine",
    b"NVR\0": _NCU_REPORT,
    b"NVP\0": _NCU_REPORT,
    b"\xff\xfe": "UTF-16 text; convert it to UTF-8",
    b"\xfe\xff": "UTF-16 text; convert it to UTF-8",
}

_NSIGHT_SIGN = compile_later(rb"NVIDIA (?:Nsight Systems|Tegra System Profiler)( Stream)?|QuadD")

_PLANE = compile_later(
    rb"\x0a[\x80-\xff]{0,9}[\x00-\x7f]"  # XSpace.planes, and its size
    rb"(?:\x08[\x80-\xff]{0,9}[\x00-\x7f])?"  # XPlane.id, left out where it is 0
    rb"\x12[\x01-\x7f](?:/host:|/device:|#Chip|Task Environment)",  # XPlane.name
    re.DOTALL,
)

_CHAKRA_METADATA = compile_later(rb"[\x04-\x7f]\x0a[\x03-\x20][0-9]+\.[0-9]+\.[0-9]+")
"""The first message of a Chakra protobuf: its size, then the version."""

_PICKLE = compile_later(rb"\x80[\x02-\x05]")
_SNAPSHOT_KEYS = (b"device_traces", b"segments", b"external_annotations")

_REPORT_NAME = compile_later(r"\.(?:nsys-rep|qdrep)$", re.IGNORECASE)


def describe_file(head: bytes, name: str = "") -> str:
    """Describe in a few words a file that begins with `head` and is not a JSON object or list."""
    if not head.strip():
        return "an empty file"
    known = _describe_magic(head[:_PROBED_BYTES])
    if known:
        return known
    if b"\0" in head[:4] and head[:4].count(b"\0") == 2:
        return "UTF-16 text; convert it to UTF-8"
    controls = sum(byte < 32 and byte not in b"\t\n\f\r\x1b" for byte in head[:1024])
    if b"\0" in head[:1024] or controls > max(1, len(head[:1024]) // 32):
        return NSIGHT_REPORT if _REPORT_NAME.search(name) else "binary data"
    values = parse_values(head)
    if values is not None and len(values) == 1:
        return quote_file(f"the JSON value {excerpt(head)}", "a JSON value")
    return quote_file(f"text that begins with: {excerpt(head[:400])}", "text")


def describe_object(keys: Collection[str], header: Mapping[str, Any]) -> str:
    """Describe a JSON object without traceEvents by its first keys and their values; "" where it is unknown."""
    if "speedscope" in str(header.get("$schema", "")) or {"shared", "profiles"} <= set(keys):
        return _SPEEDSCOPE
    if "chakra" in str(header.get("schema", "")) or {"schema", "nodes"} <= set(keys):
        return _CHAKRA
    if {"segments", "device_traces"} <= set(keys):
        return _MEMORY_SNAPSHOT
    return ""


def _describe_magic(head: bytes) -> str:
    for magic, description in _MAGIC.items():
        if head.startswith(magic):
            return description
    if _PICKLE.match(head):
        is_snapshot = any(key in head for key in _SNAPSHOT_KEYS)
        return _MEMORY_SNAPSHOT if is_snapshot else "a Python pickle, which is not read, as it could run any code"
    if head.startswith(b"<"):
        return _MEMORY_TIMELINE if b"data:image/png;base64" in head else "a page of HTML or XML"
    sign = _NSIGHT_SIGN.search(head[:256]) if b"{" not in head[:2] else None
    if sign is not None:
        return _NSIGHT_STREAM if sign[1] else NSIGHT_REPORT
    if is_xplane(head):
        return _XPLANE
    return _CHAKRA if _CHAKRA_METADATA.match(head) else ""


def is_xplane(head: bytes) -> bool:
    """Tell whether a file begins with a plane of an XPlane protobuf; Perfetto's packets have the same outer field."""
    return _PLANE.match(head) is not None
