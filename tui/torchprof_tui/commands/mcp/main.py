"""Serve agents over the Model Context Protocol: `torchprof-tui mcp`."""

from __future__ import annotations

import importlib
import os

from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import guard_mapped_files
from torchprof_tui.commands.mcp import McpOptions

_PROGRAM = "torchprof_"
"""How the program's own packages are called; the server imports no others that its extra does not bring."""


def run(options: McpOptions) -> int:
    """Serve until stdin ends. Raises UsageError without the extra, or for a folder that is none."""
    try:
        server = importlib.import_module("torchprof_tui.commands.mcp.server")
    except ImportError as error:
        if (error.name or _PROGRAM).startswith(_PROGRAM):
            raise
        raise UsageError(f'mcp needs the extra mcp ({error}): pip install "torchprof-tui[mcp]"') from error
    guard_mapped_files()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    server.serve(options.folder or ["."])
    return 0
