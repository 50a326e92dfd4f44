"""Write folded stacks, for flamegraph.pl, inferno and speedscope: `export --folded`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from torchprof_tui.analysis.flame.flame_export import iterate_folded_lines
from torchprof_tui.commands.export.flame_scope import fold_chosen
from torchprof_tui.commands.export.formats import ExportResult
from torchprof_tui.trace.core.atomic_file import write_atomically
from torchprof_tui.trace.model.trace import Trace


def write(trace: Trace, out: Path, options: argparse.Namespace) -> ExportResult:
    """Write the stacks of a trace to a file. Raises UsageError, OutputError."""
    lines = [*iterate_folded_lines(fold_chosen(trace, options))]
    write_atomically(out, "".join(lines))
    return ExportResult(len(lines), "stacks")


def print_text(trace: Trace, options: argparse.Namespace) -> None:
    """Print the stacks of a trace. Raises UsageError."""
    sys.stdout.writelines(iterate_folded_lines(fold_chosen(trace, options)))
