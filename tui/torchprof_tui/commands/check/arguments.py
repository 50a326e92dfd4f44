"""Define the arguments of `torchprof-tui check`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from torchprof_tui.commands.common.arguments import add_trace_arguments

if TYPE_CHECKING:
    pass


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_trace_arguments(parser, is_required=False)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--problems", action="store_true", help="only the verdict and the problems")
    parser.add_argument("--markdown", action="store_true", help="a report for a ticket, as Markdown")
    parser.add_argument("--list", action="store_true", help="all patterns, one line each; needs no TRACE")
    parser.add_argument(
        "--fail-on",
        metavar="PATTERN[,…]|fired",
        help="exit status 1 if one of these fired; `fired`: any that costs time (notices and artefacts do not count); "
        "--json lists them as `failed_on`",
    )
    parser.add_argument("--range", metavar="T0:T1", help="only this time: 12.5ms:30ms; a bare number is µs")
