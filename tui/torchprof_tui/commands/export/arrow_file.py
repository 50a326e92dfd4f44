"""Write all events as Parquet or as an Arrow file: `export -o OUT.parquet`, `-o OUT.arrow`."""

from __future__ import annotations

import argparse
from pathlib import Path

from torchprof_tui.analysis.export.arrow_events import require_arrow, write_arrow, write_parquet
from torchprof_tui.analysis.export.event_columns import EventColumns
from torchprof_tui.commands.export.formats import FORMATS, ExportResult
from torchprof_tui.trace.model.trace import Trace

check_packages = require_arrow


def write(trace: Trace, out: Path, options: argparse.Namespace) -> ExportResult:
    """Write a trace in the format of the file name. Raises MissingExtraError, OutputError."""
    columns = EventColumns(trace)
    (write_parquet if out.name.endswith(FORMATS["parquet"].suffixes) else write_arrow)(columns, out)
    return ExportResult(len(columns), "events")
