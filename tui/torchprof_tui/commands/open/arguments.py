"""Define the arguments of `torchprof-tui TRACE`, which opens the app."""

from __future__ import annotations

import argparse

from torchprof_tui.commands.common.arguments import add_capture_option

COLOR_SYSTEMS = {"auto": "auto", "truecolor": "truecolor", "256": "256", "16": "standard"}
"""Values of `--color` and textual's names for them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "trace",
        nargs="*",
        metavar="TRACE",
        help="a trace (.json, .json.gz, .xz, .zst), host:path, a URL, sample:NAME, or - for stdin; the ranks of one "
        "run as a folder, a pattern or several files; without one, the start screen",
    )
    parser.add_argument("--at", metavar="TIME|STEP", help="time or step to show first: 12.5ms, 300us, step3")
    add_capture_option(parser)
    parser.add_argument("--no-cache", action="store_true", help="neither read nor write the cache of decoded traces")
    add_appearance_options(parser)


def add_appearance_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that open the app: theme, colour, mouse."""
    parser.add_argument("--theme", choices=("dark", "light"), default="dark")
    parser.add_argument(
        "--color",
        choices=(*COLOR_SYSTEMS, "none"),
        default="auto",
        help="colours of the terminal; over ssh auto may choose too few, because COLORTERM is not forwarded",
    )
    parser.add_argument(
        "--no-mouse", action="store_true", help="do not use the mouse, so that the terminal can select text"
    )
    parser.add_argument(
        "--mouse", action="store_false", dest="no_mouse", help="use the mouse where the configuration file says no"
    )
