"""Write a profile for https://www.speedscope.app: `export --speedscope`."""

from __future__ import annotations

import argparse
from pathlib import Path

from torchprof_tui.analysis.flame.flame_export import format_speedscope
from torchprof_tui.commands.export.flame_scope import fold_chosen
from torchprof_tui.commands.export.formats import ExportResult
from torchprof_tui.trace.core.atomic_file import write_atomically
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.model.trace import Trace


def write(trace: Trace, out: Path, options: argparse.Namespace) -> ExportResult:
    """Write the stacks of a trace to a file. Raises UsageError, OutputError."""
    tree = fold_chosen(trace, options)
    write_atomically(out, format_speedscope(tree, clean(Path(trace.label).name)))
    return ExportResult(int((tree.value_ns > 0).sum()), "stacks")


def print_text(trace: Trace, options: argparse.Namespace) -> None:
    """Print the document. Raises UsageError."""
    print(format_speedscope(fold_chosen(trace, options), clean(Path(trace.label).name)), end="")
