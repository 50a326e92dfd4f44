"""Write all events as comma-separated values: `export -o OUT.csv`."""

from __future__ import annotations

import argparse
from pathlib import Path

from torchprof_tui.analysis.export.event_columns import EventColumns, write_csv
from torchprof_tui.commands.export.formats import ExportResult
from torchprof_tui.trace.model.trace import Trace


def write(trace: Trace, out: Path, options: argparse.Namespace) -> ExportResult:
    """Write a trace as CSV. Raises OutputError."""
    columns = EventColumns(trace)
    write_csv(columns, out)
    return ExportResult(len(columns), "events")
