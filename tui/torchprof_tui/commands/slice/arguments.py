"""Define the arguments of `torchprof-tui slice`."""

from __future__ import annotations

import argparse

from torchprof_tui.commands.common.arguments import (
    add_keep_metadata_option,
    add_rank_option,
    add_trace_arguments,
)
from torchprof_tui.commands.common.time_range import TIME_RANGE_HELP


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write every event that overlaps the range, the events it is linked to (launch and kernels, forward and "
        "backward, flow arrows) and all events that enclose them. Names, labels and the header are kept, without "
        "environment variables and secrets; counters and memory events only where they lie in the range."
    )
    add_trace_arguments(parser, "a trace, host:path, a URL, sample:NAME, or - for stdin")
    add_rank_option(parser)
    parser.add_argument("--range", metavar="T0:T1", required=True, help=f"start and end: {TIME_RANGE_HELP}")
    parser.add_argument("-o", "--output", metavar="OUT", required=True, help="OUT.json or OUT.json.gz")
    add_keep_metadata_option(parser)
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")
