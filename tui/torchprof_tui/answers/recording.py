"""The answer of `run`. Imports no numpy: a recording that is not compared needs none."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, UnsetType

from torchprof_tui.answers.record import Answer, about, fill
from torchprof_tui.runs.run_result import RunResult


class Recording(Answer, frozen=True, kw_only=True, tag="torchprof-tui/run/1"):
    """How a recording ended and what it saved. Paths are absolute."""

    traces: Annotated[list[str], about("recorded traces, by rank, then by time")]
    table: Annotated[str | None, about("torch's table of the first trace, a text file; null without one")]
    tables: Annotated[list[str], about("torch's tables of all traces")]
    memory_snapshots: Annotated[list[str], about("memory snapshots, by rank; only with --memory-snapshot")]
    exit_status: Annotated[int, about("of the program; 128 plus the number of the signal that ended it")]
    seconds: Annotated[float, about("from start to end")]
    ended: Annotated[
        str | None, about("why it ended: finished, stopped, interrupted, exception, …; null if it was killed")
    ]
    folder: Annotated[str | None, about("folder of the run; null if none was made")]
    command: Annotated[list[str], about("the recorded command")]
    cannot_tell: Annotated[
        str | None, about("why nothing was compared; only with `--compare-to`, and left out after a comparison")
    ] = None
    diff: Annotated[
        dict[str, Any] | UnsetType | None,
        about("the document of `diff --json`; null if nothing was compared; only with `--compare-to`"),
    ] = UNSET


def build_recording(
    result: RunResult, diff: dict[str, Any] | UnsetType | None = UNSET, cannot_tell: str = ""
) -> Recording:
    """Build the answer of a run; `diff`: that of its comparison, None if there is none because of `cannot_tell`."""
    return fill(
        Recording,
        result,
        traces=list(result.traces),
        table=result.tables[0] if result.tables else None,
        tables=list(result.tables),
        memory_snapshots=list(result.snapshots),
        seconds=round(result.seconds, 3),
        ended=result.end_reason,
        command=list(result.command),
        cannot_tell=cannot_tell or None,
        diff=diff,
    )
