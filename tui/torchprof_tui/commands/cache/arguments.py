"""Define the arguments of `torchprof-tui cache`."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--clear", action="store_true", help="remove all entries, except those of traces that are open now"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
