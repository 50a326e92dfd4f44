"""Format the op that was captured for a replayed kernel."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.ui.common.event_styles import Palette
from torchprof_tui.ui.common.name_display import clean, shorten, truncate
from torchprof_tui.ui.common.painted_widget import TextRun
from torchprof_tui.ui.common.text_panel import Lines, wrap_text

if TYPE_CHECKING:
    from torchprof_tui.analysis.dispatch.chain import Hop
    from torchprof_tui.analysis.graphs.captured_chain import CapturedChain

MAX_HOPS = 8
"""Innermost hops of the capture that are listed; the others are counted."""

KIND_OF_ROLE = {"python": Kind.PYTHON, "op": Kind.OP, "launch": Kind.RUNTIME, "step": Kind.STEP}


def format_captured(captured: CapturedChain | str | None, palette: Palette, width: int) -> Lines:
    """Format the op, its shapes and its innermost callers in the capture, or why they are unknown."""
    if captured is None:
        return []
    if isinstance(captured, str):
        return wrap_text(f"captured op unknown: {captured}", width, palette.warning)
    lines = wrap_text(f"from the capture: {describe_captured(captured)}", width, palette.heading)
    hidden = len(captured.hops) - MAX_HOPS
    if hidden > 0:
        lines.append([(f"  {hidden} outer {'call' if hidden == 1 else 'calls'}", palette.muted)])
    for depth, hop in enumerate(captured.hops[-MAX_HOPS:]):
        lines.append(_format_hop(hop, depth, palette, width))
    if captured.doubt:
        lines += wrap_text(captured.doubt, width, palette.warning)
    return lines


def describe_captured(captured: CapturedChain) -> str:
    """Describe a captured op in one line: name, input shapes, file."""
    shapes = f" {captured.input_dims}" if captured.input_dims else ""
    file = "" if captured.op.trace is None else f" · {os.path.basename(captured.op.trace.label)}"
    annotation = captured.op.annotation if captured.op.trace is not None else ""
    note = f" · {clean(annotation)}" if annotation else ""
    return f"{clean(captured.op.op_name)}{clean(shapes)}{note}{clean(file)}"


def _format_hop(hop: Hop, depth: int, palette: Palette, width: int) -> list[TextRun]:
    kind = KIND_OF_ROLE.get(hop.role.value, Kind.ANNOTATION)
    name = truncate(shorten(clean(hop.name)), max(width - depth - 2, 8))
    return [("▌ ", palette.ink(kind)), (" " * depth + name, palette.text)]
