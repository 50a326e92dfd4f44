"""Write a trace for other programs: `torchprof-tui export`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from torchprof_tui.analysis.slicing.source_files import check_not_source
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import load_specs, select_rank
from torchprof_tui.commands.common.partial_input import partial_as_json
from torchprof_tui.commands.common.private_values import report_private_values
from torchprof_tui.commands.export.formats import choose_format, import_writer
from torchprof_tui.trace.core.atomic_file import OutputError, check_target
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.ui.common.number_format import format_file_size

SCHEMA = "torchprof-tui/export/1"


def run(options: argparse.Namespace) -> int:
    out = Path(options.output)
    name, chosen = choose_format(options.format, out)
    write = import_writer(chosen)
    try:
        check_target(out)  # before a large trace is read
        trace = load_specs(options.trace, cache=not options.no_cache).trace
        if options.rank is not None:
            trace, rank = select_rank(trace, options.rank)
            trace = trace if rank is None else rank.numbered_trace
        check_not_source(trace, out)
        result = write(trace, out, options)
    except OutputError as error:
        raise UsageError(f"-o: {error}") from error
    if result.left_out:
        print(clean(f"torchprof-tui: left out: {', '.join(result.left_out)}"), file=sys.stderr)
    report_private_values(result.private_values)
    size = out.stat().st_size
    if options.json:
        answer = {
            "schema": SCHEMA,
            "trace": options.output,
            "format": name,
            result.unit: result.count,
            "bytes": size,
            "left_out": [*result.left_out, *(value.path for value in result.private_values)],
            "partial": partial_as_json(trace),
        }
        print(json.dumps(answer))
        return 0
    print(clean(f"wrote {out}: {result.count:,} {result.unit}, {format_file_size(size)}"))
    return 0
