"""Define the arguments of `torchprof-tui check`."""

from __future__ import annotations

import argparse

from torchprof_tui.commands.common.arguments import add_capture_option, add_trace_arguments, add_undecided_option


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_trace_arguments(parser, is_required=False)
    add_capture_option(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--problems", action="store_true", help="print only the verdict and the problems")
    parser.add_argument("--notes", action="store_true", help="print also the patterns that only help to read the trace")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown report, for a ticket")
    parser.add_argument("--list", action="store_true", help="list all patterns; needs no TRACE")
    parser.add_argument(
        "--fail-on",
        metavar="PATTERN[,…]|fired",
        help="exit with 1 if one of these was found; `fired`: any that costs time (notes and artefacts do not count); "
        "--json lists them as `failed_on`",
    )
    add_undecided_option(parser)
    parser.add_argument("--range", metavar="T0:T1", help="check only this range: 12.5ms:30ms (µs without a unit)")
