"""Serve agents over the Model Context Protocol: `torchprof-tui mcp`."""

from __future__ import annotations

import argparse
import importlib
import os

from torchprof_tui.commands.common.cut_file_guard import guard_mapped_files
from torchprof_tui.commands.common.errors import UsageError

PACKAGES = frozenset(("mcp", "mcp_types"))
"""What the extra `mcp` brings and only the server needs."""


def run(options: argparse.Namespace) -> int:
    """Serve until stdin ends. Raises UsageError without the extra, or for a folder that is none."""
    try:
        server = importlib.import_module("torchprof_tui.commands.mcp.server")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PACKAGES:
            raise
        raise UsageError('an MCP server needs the extra mcp: pip install "torchprof-tui[mcp]"') from error
    guard_mapped_files()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    server.serve(options.folder or ["."], options.build_parser)
    return 0
