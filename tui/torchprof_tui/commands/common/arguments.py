"""Add the arguments that several commands share."""

from __future__ import annotations

import argparse
import sys

from torchprof_tui.commands.common.errors import UsageError

UNDECIDED_STATUS = 3
"""Exit status where `--fail-on` asks what the trace cannot tell: a gate that does not know must not pass."""

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


def add_undecided_option(parser: argparse.ArgumentParser) -> None:
    """Add --undecided, for commands with --fail-on."""
    parser.add_argument(
        "--undecided",
        choices=("fail", "pass"),
        help="where --fail-on cannot be decided: `fail`: exit status 3 (default); `pass`: 0",
    )


def reject_undecided_alone(options: argparse.Namespace) -> None:
    """Raise UsageError for --undecided without --fail-on."""
    if options.undecided is not None and options.fail_on is None:
        raise UsageError("--undecided is about --fail-on, which is not given")


def choose_undecided_status(undecided: str | None) -> int:
    """Return the exit status where `--fail-on` cannot be decided, and report on stderr how to allow it."""
    if undecided == "pass":
        return 0
    hint = f"exit status {UNDECIDED_STATUS}; to allow it: --undecided pass"
    print(f"torchprof-tui: --fail-on cannot be decided: {hint}", file=sys.stderr)
    return UNDECIDED_STATUS
