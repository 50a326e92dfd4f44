"""Define the arguments of `torchprof-tui diff`."""

from __future__ import annotations

import argparse

from torchprof_tui.commands.common.arguments import add_undecided_option

GROUPINGS = ("op", "module", "kernel", "class", "cause")
"""What the rows of the second table are: `class` and `cause` group the account, the others match events."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    trace = "a trace, sample:NAME, host:path, a URL, a folder of ranks"
    parser.add_argument("a", metavar="A", help=f"the recording to compare with: {trace}")
    parser.add_argument("b", metavar="B", help="the recording that changed; the same path for two steps of one trace")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="one JSON document on stdout")
    output.add_argument("--markdown", action="store_true", help="a report for a ticket, as Markdown")
    output.add_argument(
        "--screen", action="store_true", help="both traces' lanes on one screen, locked in time (key D in the explorer)"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--steps", metavar="N..M", help="these steps: 3..7 or '#3'; 3..7/8..12: the first of A, the second of B"
    )
    which.add_argument(
        "--range", metavar="T0..T1", help="this time: 12ms..30ms; 12ms..30ms/5ms..23ms: the first of A, the second of B"
    )
    parser.add_argument("--rank", metavar="N", help="of several ranks this one (the first); 0/3: of A and of B")
    parser.add_argument("--by", choices=GROUPINGS, default="op", help="what the rows are (default: op)")
    parser.add_argument(
        "--fail-on",
        metavar="+5%",
        help="exit status 1 if a step of B takes that much longer than one of A (+5%%, +200us), beyond the noise",
    )
    add_undecided_option(parser)
    parser.add_argument(
        "--capture",
        metavar="PATH",
        action="append",
        default=[],
        help="a trace of the capture of graphs that A or B replays, or a folder of such: replays are compared op by op "
        "(default: capture_traces/ beside each)",
    )
    parser.add_argument("--no-cache", action="store_true", help="neither use nor keep what was decoded")
