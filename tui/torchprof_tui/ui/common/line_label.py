"""Label a line of the program for display."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchprof_tui.analysis.dispatch.source_line import SourceLine


def describe_kind(line: SourceLine) -> str:
    """Return what is known about the origin of an event: "line", "file", "line of its forward", "annotation", …"""
    kind = {"frame": "file" if line.line is None else "line"}.get(line.kind, line.kind)
    return f"{kind} of its forward" if line.from_forward else kind
