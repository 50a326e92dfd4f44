"""Add the arguments that several commands share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass

RANKS_HELP = "several files, a folder or a pattern: the ranks of one run"


def add_trace_arguments(
    parser: argparse.ArgumentParser,
    description: str = "a trace, sample:NAME, or - for stdin",
    is_required: bool = True,
) -> None:
    """Add TRACE… and --no-cache."""
    parser.add_argument(
        "trace", nargs="+" if is_required else "*", metavar="TRACE", help=f"{description}; {RANKS_HELP}"
    )
    parser.add_argument("--no-cache", action="store_true", help="neither read nor write the cache of decoded traces")


def add_capture_option(parser: argparse.ArgumentParser) -> None:
    """Add --capture, for commands that know the ops of replayed kernels."""
    parser.add_argument(
        "--capture",
        metavar="PATH",
        action="append",
        default=[],
        help="a trace of the capture of its graphs, of an eager run of the same model, or a folder of such: the ops of "
        "replayed kernels (default: capture_traces/ beside TRACE)",
    )


def add_rank_option(parser: argparse.ArgumentParser) -> None:
    """Add --rank, for commands about one process."""
    parser.add_argument("--rank", metavar="N", type=int, help="which rank of a run (default: the first)")


def add_keep_metadata_option(parser: argparse.ArgumentParser) -> None:
    """Add --keep-metadata, for commands that write trace files."""
    parser.add_argument(
        "--keep-metadata",
        action="store_true",
        help="keep environment variables and secrets in the metadata of the file",
    )
