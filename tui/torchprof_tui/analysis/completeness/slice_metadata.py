"""What a slice records about its source: which range of which trace it holds, and what that trace had lost."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchprof_tui.trace.core.problems import Problem, excerpt
from torchprof_tui.trace.model.trace import Trace

SLICE_KEY = "torchprof_tui_slice"
"""Top-level key of the trace file that holds the metadata."""

_MAX_TIME = 2**62
"""ns, 146 years: the sum of two larger times would overflow int64."""


@dataclass(frozen=True, slots=True)
class SliceMetadata:
    """`source_name`: file name of the source, "" if not recorded. `source_range`: ns on the source's clock.
    `slice_range`: the same range on the slice's clock, None for older slices, which do not record the offset between
    the two clocks. `source_losses`: what the source had lost.
    """

    source_name: str
    source_range: tuple[int, int]
    slice_range: tuple[int, int] | None
    source_losses: tuple[Problem, ...] = ()


def build_slice_metadata(source: Trace, t0: int, t1: int, losses: Sequence[Problem]) -> dict[str, Any]:
    """Build the metadata for a slice of t0 to t1 (ns, t1 exclusive) of `source`.

    Only the last part of the source's path is recorded: folder names are private.
    """
    metadata: dict[str, Any] = {
        "range_ns": [t0, t1],
        "entries_of": source.counts.events,
        "of": re.split(r"[/\\]", source.label)[-1].encode(errors="replace").decode(),
        "origin_ns": source.origin,
    }
    if losses:
        metadata["partial"] = [
            {"kind": problem.kind, "count": problem.count, "example": problem.example} for problem in losses
        ]
    return metadata


def read_slice_metadata(trace: Trace) -> SliceMetadata | None:
    """Read the slice metadata of a trace; None if it is no slice or its metadata is malformed."""
    metadata = trace.header.get(SLICE_KEY)
    if not isinstance(metadata, Mapping):
        return None
    match metadata.get("range_ns"):
        case [int(t0), int(t1)] if -_MAX_TIME < t0 < t1 < _MAX_TIME:
            pass
        case _:
            return None
    source_name, origin, losses = metadata.get("of"), metadata.get("origin_ns"), metadata.get("partial")
    slice_range = None
    if isinstance(origin, int) and abs(origin) < _MAX_TIME:
        # Entries keep their ts, so both traces use the clock of the file, each with its own origin.
        shift = origin - trace.origin
        slice_range = t0 + shift, t1 + shift
    parsed = [_parse_problem(entry) for entry in losses] if isinstance(losses, list) else []
    return SliceMetadata(
        excerpt(source_name) if isinstance(source_name, str) else "",
        (t0, t1),
        slice_range,
        tuple(problem for problem in parsed if problem is not None),
    )


def _parse_problem(entry: object) -> Problem | None:
    match entry:
        case {"kind": str(kind), "count": int(count), "example": str(example)} if count > 0:
            return Problem(excerpt(kind), count, excerpt(example))
    return None
