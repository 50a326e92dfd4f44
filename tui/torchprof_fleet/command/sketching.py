"""List the traces that the user named, local and remote ones mixed, and sketch them.

Those with a stored sketch are read from the cache, the others sketched by whoever is asked.
All sketches of a job also lie in one file of the cache, the pack: reading a thousand small files takes ten times as
long. It belongs to the folders of the traces, and lists the names of the sketches in it, which are digests of the
traces' identities: of a trace that has changed, the sketch in the pack is not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from torchprof_fleet.analysis.fleet import LeftOut
from torchprof_fleet.analysis.rank_sketch import SKETCH_VERSION, RankSketch, decode_sketches, encode_sketches
from torchprof_fleet.analysis.sketch_task import SketchResult
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.loading.resolve import resolve_path
from torchprof_tui.trace.sources.listing import list_remote_traces
from torchprof_tui.trace.specs.address import ListedTrace, is_remote
from torchprof_tui.trace.specs.rank_files import (
    NO_TRACE_IN_FOLDER,
    NotRanksError,
    expand_spec,
    explain_unreadable_ranks,
    list_local_traces,
)
from torchprof_tui.trace.storage.disk_cache import find_pack_path, find_sketch_path, read_sketch, store_sketch

SketchMany = Callable[[Sequence[ListedTrace], Callable[[], bool]], Iterable[SketchResult]]
"""Sketches traces and yields each result as it comes, in any order; ends early once the function returns True."""

Report = Callable[[RankSketch | None, int, int], None]
"""Called with each sketch, None for a file without, and with the number of files so far and of all."""


@record
class SketchedFleet:
    """The sketches by file, the files without one, and how many came from the cache."""

    sketches: tuple[RankSketch, ...]
    lost: tuple[LeftOut, ...]
    reused: int


def sketch_all(
    traces: Sequence[ListedTrace],
    sketch_many: SketchMany,
    cache: bool = True,
    report: Report = lambda *_: None,
    is_cancelled: Callable[[], bool] = lambda: False,
    no_traces: Sequence[LeftOut] = (),
) -> SketchedFleet:
    """Sketch all traces, or until it is cancelled. What is done when this is interrupted stays in the cache.

    `no_traces`: what was named and is no trace; it is lost as well.
    """
    paths = {trace.spec: find_sketch_path(trace.spec, trace.identity, SKETCH_VERSION) for trace in traces}
    by_spec = {trace.spec: trace for trace in traces}
    packed = read_pack(list(by_spec.values()), paths) if cache else {}
    sketches: dict[str, RankSketch] = {}
    for sketch in _read_stored(list(by_spec.values()), paths, packed) if cache else ():
        sketches[sketch.file] = sketch
        report(sketch, len(sketches), len(by_spec))
    reused = len(sketches)
    lost: dict[str, LeftOut] = {}
    missing = [trace for trace in traces if trace.spec not in sketches]
    for result in sketch_many(missing, is_cancelled) if missing else ():
        made = _decode(by_spec[result.spec], result.data)
        if made is None:
            reason = result.reason or "its sketch was lost on the way"
            lost[result.spec] = LeftOut.from_line(result.spec, reason)
        else:
            sketches[result.spec] = made
            if cache:
                store_sketch(paths[result.spec], result.data)
        report(made, len(sketches) + len(lost), len(by_spec))
    if cache and len(sketches) > len(packed):
        store_pack(list(by_spec.values()), paths, sketches)
    return SketchedFleet(
        tuple(sketches[spec] for spec in sorted(sketches)), (*no_traces, *(lost[spec] for spec in sorted(lost))), reused
    )


def _read_stored(
    traces: Sequence[ListedTrace], paths: Mapping[str, Path | None], packed: Mapping[str, RankSketch]
) -> Iterator[RankSketch]:
    """Yield the sketches of a pack, then those that are stored in files of their own."""
    yield from packed.values()
    rest = [trace for trace in traces if trace.spec not in packed]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:  # Parquet is decoded without Python's lock
        stored = pool.map(lambda trace: _decode(trace, read_sketch(paths[trace.spec])), rest)
        yield from (sketch for sketch in stored if sketch is not None)


def _decode(trace: ListedTrace, data: bytes) -> RankSketch | None:
    """Decode one sketch, named as the user named its file; None for none. A rank known from beside the file counts."""
    if not data:
        return None
    try:
        (sketch,) = decode_sketches(data)
    except (TraceError, ValueError):
        return None
    rank = sketch.rank if sketch.rank >= 0 or trace.rank is None else trace.rank
    return replace(sketch, file=trace.spec, rank=rank)


MIN_COUNT = 16  # sketches from which there is a pack

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


def list_sources(names: Sequence[str], connections: contextlib.ExitStack) -> tuple[list[ListedTrace], list[LeftOut]]:
    """List the traces, each once; also returns the names that there are none of. Raises UsageError without traces."""
    expanded = [resolve_path(name) for name in names]
    if "-" in expanded:
        raise UsageError("-: a fleet is files; stdin is one trace")
    remote = [name for name in expanded if is_remote(name)]
    listings = {listing.name: listing for listing in list_remote_traces(remote, connections)} if remote else {}
    found: dict[str, ListedTrace] = {}
    lost: list[LeftOut] = []
    for name in expanded:
        if name in listings:
            lost += [LeftOut.from_line(name, listings[name].error)] if listings[name].error else []
            traces: Sequence[ListedTrace] = listings[name].traces
        elif os.path.isdir(name):
            traces = list_local_traces(name)
            reasons = explain_unreadable_ranks(name, {trace.spec for trace in traces})
            unreadable = [LeftOut(os.path.join(name, file), reason) for file, reason in reasons]
            lost += unreadable if traces or unreadable else [LeftOut(name, NO_TRACE_IN_FOLDER)]
        else:
            try:
                traces = [ListedTrace(path, None, 0.0) for path in expand_spec(name)]
            except NotRanksError as error:
                raise UsageError(str(error)) from error
        for trace in traces:
            found.setdefault(trace.spec, trace)
    if not found:
        raise UsageError(lost[0].line if lost else "no traces")
    return list(found.values()), lost
