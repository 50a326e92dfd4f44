"""Declare the options of `torchprof-tui mcp`."""

from __future__ import annotations

from torchprof_tui.commands.common.options import Options, option


class McpOptions(Options):
    description = (
        "Answer an agent's questions about traces over stdin and stdout, as an MCP server. It reads only traces in the "
        "folders that are named here, and samples; see docs/agents.md."
    )

    folder: tuple[str, ...] = option(
        "folders of traces; slices are written there too (default: .)", "FOLDER", is_positional=True, default=()
    )
