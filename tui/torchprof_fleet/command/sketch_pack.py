"""All sketches of a job in one file of the cache: reading a thousand small files takes ten times as long.

The pack belongs to the folders of the traces. It lists the names of the sketches in it, which are digests of the
traces' identities: of a trace that has changed, the sketch in the pack is not used.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchprof_fleet.analysis.rank_sketch import SKETCH_VERSION, RankSketch
from torchprof_fleet.analysis.sketch_parquet import decode_sketches, encode_sketches
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.specs.address import ListedTrace
from torchprof_tui.trace.storage.sketch_cache import find_pack_path, read_sketch, store_sketch

MIN_COUNT = 16
"""Sketches from which there is a pack."""

_MAGIC = b"torchprof-tui sketches 1"


def _find_path(traces: Sequence[ListedTrace]) -> Path:
    folders = sorted({os.path.dirname(trace.spec) for trace in traces})
    digest = hashlib.blake2b("\0".join(folders).encode(errors="surrogatepass"), digest_size=16).hexdigest()
    return find_pack_path(digest, SKETCH_VERSION)


def _name_sketch(trace: ListedTrace, path: Path | None) -> str:
    """Name a sketch by its file in the cache, and by the rank that is known from beside the trace."""
    return "" if path is None else f"{path.name} {'' if trace.rank is None else trace.rank}"


def read_pack(traces: Sequence[ListedTrace], paths: Mapping[str, Path | None]) -> dict[str, RankSketch]:
    """Read the sketches of unchanged traces, by spec. `paths`: where the sketch of each trace is, or would be."""
    if len(traces) < MIN_COUNT:
        return {}
    head, _, rest = read_sketch(_find_path(traces)).partition(b"\n")
    names, _, data = rest.partition(b"\n")
    if head != _MAGIC + b" %08x" % zlib.crc32(names):
        return {}
    try:
        packed = dict(zip(names.decode().split("\t"), decode_sketches(data), strict=True))
    except (TraceError, ValueError):
        return {}
    wanted = {trace.spec: _name_sketch(trace, paths[trace.spec]) for trace in traces}
    found = {spec: packed[name] for spec, name in wanted.items() if name in packed}
    return {spec: sketch for spec, sketch in found.items() if sketch.file == spec}


def store_pack(
    traces: Sequence[ListedTrace], paths: Mapping[str, Path | None], sketches: Mapping[str, RankSketch]
) -> None:
    """Store the sketches, in place of an earlier pack of the same folders."""
    packed = [trace for trace in traces if trace.spec in sketches and paths[trace.spec] is not None]
    if len(packed) < MIN_COUNT:
        return
    names = "\t".join(_name_sketch(trace, paths[trace.spec]) for trace in packed).encode()
    data = encode_sketches([sketches[trace.spec] for trace in packed])
    store_sketch(_find_path(traces), _MAGIC + b" %08x\n" % zlib.crc32(names) + names + b"\n" + data)
