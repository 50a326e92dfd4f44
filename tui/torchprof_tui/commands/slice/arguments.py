"""Define the arguments of `torchprof-tui slice`."""

from __future__ import annotations

import argparse

from torchprof_tui.commands.common.arguments import add_rank_option, add_trace_arguments
from torchprof_tui.commands.common.time_range import TIME_RANGE_HELP


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Writes every event with a part in the range, whole; the other ends of its links (launch and kernels, forward "
        "and backward, flow arrows) wherever they lie; and all that encloses those. Names, labels and the header are "
        "kept, counters and memory where they lie in the range."
    )
    add_trace_arguments(parser, "a trace, host:path, a URL, sample:NAME, or - for stdin")
    add_rank_option(parser)
    parser.add_argument("--range", metavar="T0:T1", required=True, help=f"from when to when: {TIME_RANGE_HELP}")
    parser.add_argument("-o", "--output", metavar="OUT", required=True, help="OUT.json or OUT.json.gz")
    parser.add_argument("--json", action="store_true", help="what was written, as one JSON document on stdout")
