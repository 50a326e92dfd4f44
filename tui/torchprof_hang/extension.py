"""Declare the command `hang`; pyproject.toml names it as an entry point."""

from __future__ import annotations

from torchprof_tui.trace.core.extensions import CommandExtension

COMMAND = CommandExtension(
    help="find which rank did not come to a collective, and at which line",
    options="torchprof_hang.command:HangOptions",
    run="torchprof_hang.command.main:run",
    answers="torchprof_hang.answers:ANSWERS",
    tools="torchprof_hang.mcp_tool:TOOLS",
    screens="torchprof_hang.ui",
)
