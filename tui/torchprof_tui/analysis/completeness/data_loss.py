"""Read which events a file lost and which range of its source a slice holds: others may be missing, too.

Kineto writes CPU events first and GPU events last. A truncated file has therefore lost most of its kernels, and looks
like a run whose GPU was idle or not recorded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from torchprof_tui.trace.core import problems
from torchprof_tui.trace.core.problems import Problem, excerpt
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.trace import Trace

SLICE_KEY = "torchprof_tui_slice"  # top-level key of the trace file that holds the metadata
_MAX_TIME = 2**62  # ns, 146 years: the sum of two larger times would overflow int64


@record
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
    parsed = []
    for entry in losses if isinstance(losses, list) else ():
        match entry:
            case {"kind": str(kind), "count": int(count), "example": str(example)} if count > 0:
                parsed.append(Problem(excerpt(kind), count, excerpt(example)))
    source_name = excerpt(source_name) if isinstance(source_name, str) else ""
    return SliceMetadata(source_name, (t0, t1), slice_range, tuple(parsed))


LOSS_MEANINGS = {
    problems.LOST_RANK: (
        "these ranks could not be opened; results for all ranks leave them out",
        "make them readable, then open the run again",
    ),
    problems.CUT_SHORT: (
        "the file ends too early; everything before that point was read",
        "the cause is a killed job, a full disk or an incomplete copy: export or copy it again",
    ),
    problems.CUT_CONNECTION: (
        "the connection ended before the whole trace arrived; the part that arrived was read",
        "it was resumed as far as the host allows: open it again; files that were read completely are not sent again",
    ),
    problems.DAMAGED_COMPRESSION: (
        "the compressed data is damaged; everything before the damage was read",
        "copy it again; damaged compressed files cannot be repaired",
    ),
    problems.ENDLESS_TEXT: (
        "reading stopped at a limit; everything before that point was read",
        "if the trace really is that long, --unpack-all reads all of it",
    ),
    problems.UNREADABLE_ENTRY: ("these entries could not be read or repaired, and are on no lane", ""),
    problems.UNREADABLE_HEADER: ("a key of the file beside traceEvents could not be read", ""),
    problems.TEXT_AFTER_END: ("text after the end of the JSON object was ignored", ""),
    problems.BAD_TIME: ("a ts that is not a time: the entry cannot be placed on a lane", ""),
    problems.BAD_DURATION: ("a dur that is not a time: the event is drawn without a duration", ""),
    problems.DAMAGED_TABLE: (
        "a table of the SQLite file is damaged; its rows before the damage were read",
        "export the report again: nsys export --type sqlite",
    ),
    problems.TOO_MANY_CATEGORIES: ("categories after the 65,535th are left out", ""),
}
"""Problems that lost data → (what it means, what to do about it); all others were repaired or are merely odd."""

_COUNTED_PROBLEMS = (problems.UNREADABLE_ENTRY, problems.BAD_TIME)
_TRUNCATING_PROBLEMS = (
    problems.CUT_SHORT,
    problems.CUT_CONNECTION,
    problems.DAMAGED_COMPRESSION,
    problems.DAMAGED_TABLE,
    problems.ENDLESS_TEXT,
)
"""The number of entries lost after one of these is unknown."""


@record
class DataLoss:
    """`lost_entries`: entries that were found and could not be read, of `total_entries`. `truncation`: why an unknown
    number of further entries is missing, "" where all are accounted for.
    """

    lost_entries: int
    total_entries: int
    truncation: str

    def __bool__(self) -> bool:
        return bool(self.lost_entries or self.truncation)

    @property
    def share(self) -> float:
        """Lost share of the entries, 0..1; 1 for a truncated file, whose total is unknown."""
        return 1.0 if self.truncation else self.lost_entries / max(self.total_entries, 1)

    @property
    def summary(self) -> str:
        """ "10,575 entries lost, cut short"."""
        entries = (
            f"{self.lost_entries:,} {'entry' if self.lost_entries == 1 else 'entries'} lost"
            if self.lost_entries
            else ""
        )
        return ", ".join(part for part in (entries, self.truncation) if part)

    @property
    def reason(self) -> str:
        """Why the absence of an event is undecidable."""
        return f"the file is partial ({self.summary})"


def find_data_loss(trace: Trace) -> DataLoss:
    """Find what the file of one process lost; for a slice, include what its source had lost."""
    counts: dict[str, int] = {}
    for problem in (*trace.problems, *_list_source_losses(trace)):
        counts[problem.kind] = counts.get(problem.kind, 0) + problem.count
    entries = sum(counts.get(kind, 0) for kind in _COUNTED_PROBLEMS)
    truncation = ", ".join(kind for kind in _TRUNCATING_PROBLEMS if kind in counts)
    return DataLoss(entries, trace.counts.events, truncation)


def list_losses(trace: Trace) -> list[Problem]:
    """List the problems that lost data, without repairs and oddities; for a slice, include those of its source."""
    return [problem for problem in (*trace.problems, *_list_source_losses(trace)) if problem.kind in LOSS_MEANINGS]


def _list_source_losses(trace: Trace) -> tuple[Problem, ...]:
    """List the losses that a slice reports of the trace that it was cut from; () for a whole trace."""
    metadata = read_slice_metadata(trace)
    return metadata.source_losses if metadata is not None else ()
