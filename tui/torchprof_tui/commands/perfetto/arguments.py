"""Define the arguments of `torchprof-tui perfetto`."""

from __future__ import annotations

import argparse

from torchprof_tui.commands.common.arguments import add_keep_metadata_option, add_trace_arguments
from torchprof_tui.commands.common.time_range import TIME_RANGE_HELP

PERFETTO_PORT = 9001
"""The only port of this machine from which ui.perfetto.dev may fetch: its content security policy names it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Print a link that opens the trace in Perfetto's UI. The browser fetches the trace from this command, over "
        "127.0.0.1, once; nothing is uploaded. The command ends after that, or with ctrl+c."
    )
    add_trace_arguments(parser, "a trace, host:path, a URL, sample:NAME, or - for stdin")
    parser.add_argument("--rank", metavar="N", type=int, help="only this rank of a run (default: all ranks)")
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument("--range", metavar="T0:T1", help=f"only this part of it: {TIME_RANGE_HELP}")
    scope.add_argument("--step", metavar="N", type=int, help="only ProfilerStep#N")
    parser.add_argument(
        "--port",
        metavar="N",
        type=_parse_port,
        default=PERFETTO_PORT,
        help=f"port of this machine; other than {PERFETTO_PORT}, forward {PERFETTO_PORT} to it with ssh -L",
    )
    add_keep_metadata_option(parser)


def _parse_port(text: str) -> int:
    number = int(text) if text.isascii() and text.isdecimal() else -1
    if not 0 < number < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return number
