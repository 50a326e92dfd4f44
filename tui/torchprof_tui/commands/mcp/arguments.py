"""Define the arguments of `torchprof-tui mcp`."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Answer an agent's questions about traces over stdin and stdout, as an MCP server. It reads only traces in the "
        "folders that are named here, and samples; see docs/agents.md."
    )
    parser.add_argument(
        "folder", nargs="*", metavar="FOLDER", help="folders of traces; slices are written there too (default: .)"
    )
