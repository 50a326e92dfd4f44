"""What a slice says of itself: of which trace it is which range, and what that trace had lost."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchprof_tui.trace.core.problems import Problem, excerpt
from torchprof_tui.trace.model.trace import Trace

SLICE_KEY = "torchprof_tui_slice"
"""The file's key that holds it."""

_MAX_TIME = 2**62
"""ns, 146 years: sums of two such times would not be int64 any more."""


@dataclass(frozen=True, slots=True)
class SliceMetadata:
    """`of`: what the whole was called, "" where it is not said. `range`: ns on the whole's clock; `times`: the same on
    the slice's own, None where an older slice does not say how these differ. `lost`: what the whole had lost."""

    source_name: str
    source_range: tuple[int, int]
    slice_range: tuple[int, int] | None
    source_losses: tuple[Problem, ...] = ()


def build_slice_metadata(source: Trace, t0: int, t1: int, losses: Sequence[Problem]) -> dict[str, Any]:
    """What a slice of t0 up to t1 (ns) of this trace carries. Only the last part of its path: folders are private."""
    about: dict[str, Any] = {
        "range_ns": [t0, t1],
        "entries_of": source.counts.events,
        "of": re.split(r"[/\\]", source.label)[-1],
        "origin_ns": source.origin,
    }
    if losses:
        about["partial"] = [{"kind": each.kind, "count": each.count, "example": each.example} for each in losses]
    return about


def read_slice_metadata(trace: Trace) -> SliceMetadata | None:
    """What a trace is a slice of; None where it is none, or says so in a way that makes no sense."""
    about = trace.header.get(SLICE_KEY)
    if not isinstance(about, Mapping):
        return None
    match about.get("range_ns"):
        case [int(t0), int(t1)] if -_MAX_TIME < t0 < t1 < _MAX_TIME:
            pass
        case _:
            return None
    of, origin, lost = about.get("of"), about.get("origin_ns"), about.get("partial")
    times = None
    if isinstance(origin, int) and abs(origin) < _MAX_TIME:
        # Entries keep their ts, so both traces count on the file's own clock, each from a time 0 of its own.
        shift = origin - trace.origin
        times = t0 + shift, t1 + shift
    listed = [_parse_problem(each) for each in lost] if isinstance(lost, list) else []
    return SliceMetadata(
        excerpt(of) if isinstance(of, str) else "",
        (t0, t1),
        times,
        tuple(each for each in listed if each is not None),
    )


def _parse_problem(listed: object) -> Problem | None:
    match listed:
        case {"kind": str(kind), "count": int(count), "example": str(example)} if count > 0:
            return Problem(excerpt(kind), count, excerpt(example))
    return None
