"""Define the arguments of `torchprof-tui fleet`."""

from __future__ import annotations

import argparse

from torchprof_tui.commands.open.arguments import add_appearance_options

DEFAULT_ROWS = 10
"""Rows of each text table by default."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compare all ranks of a job: which host, GPU or rank is slow, which rank the others wait for, the step "
        "time without it; in a terminal as a screen, in a pipe and with --parquet as text. Each trace is read once "
        "into a sketch of some KB, which is kept: only new and changed traces are read again. Needs the extra "
        "fleet."
    )
    parser.add_argument(
        "source", nargs="+", metavar="SOURCE", help="a folder, a pattern or a trace: local, host:path or a URL; mixed"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--parquet", metavar="OUT", help="write all sketches as Parquet, one row per rank and step")
    parser.add_argument(
        "--on", metavar="ADDRESS", help="read them on the workers of a Dask scheduler, such as tcp://scheduler:8786"
    )
    parser.add_argument(
        "--top",
        metavar="N",
        type=_parse_count,
        default=DEFAULT_ROWS,
        help=f"rows of each table (default: {DEFAULT_ROWS})",
    )
    parser.add_argument("--no-cache", action="store_true", help="neither read nor keep sketches")
    add_appearance_options(parser)


def _parse_count(text: str) -> int:
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return number
