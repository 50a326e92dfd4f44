"""Refuse to overwrite the trace that is being read."""

from __future__ import annotations

from pathlib import Path

from torchprof_tui.trace.core.atomic_file import OutputError
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.text.text_index import FileText


def check_not_source(trace: Trace, out: Path) -> None:
    """Raise OutputError if `out` is a file of the trace: the one that was named, or that holds its text."""
    for rank in trace.all_ranks:
        sources = [Path(rank.trace.label), Path(rank.file)]
        if isinstance(rank.trace.text, FileText):
            sources.append(rank.trace.text.path)
        if any(_is_same_file(out, source) for source in sources):
            raise OutputError(f"{out}: this is the trace itself, and was not overwritten; choose another name")


def _is_same_file(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except (OSError, ValueError):  # one of them does not exist, or is no valid file name
        return False
