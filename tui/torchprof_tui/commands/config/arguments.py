"""Define the arguments of `torchprof-tui config`."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", action="store_true", help="exit with 2 and one line for each mistake in the file")
    action.add_argument(
        "--init", action="store_true", help="write a file with every setting commented out; never replaces one"
    )
    action.add_argument("--keys", action="store_true", help="list the ids of all bindings with their keys")
