"""Define the arguments of `torchprof-tui cache`."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clear", action="store_true", help="remove what is kept, except what is open right now")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
