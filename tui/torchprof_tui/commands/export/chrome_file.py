"""Write a trace or all ranks of a run as one Chrome trace file: `export -o OUT.json.gz`."""

from __future__ import annotations

import argparse
from pathlib import Path

from torchprof_tui.analysis.export.chrome_file import write_chrome_file
from torchprof_tui.commands.export.formats import ExportResult
from torchprof_tui.trace.model.trace import Trace


def write(trace: Trace, out: Path, options: argparse.Namespace) -> ExportResult:
    """Write a trace as a Chrome trace file. Raises OutputError, OSError, LookupError."""
    written = write_chrome_file(trace, out, options.keep_metadata)
    return ExportResult(written.entries, "entries", written.skipped_keys, written.private_values, written.kept_keys)
