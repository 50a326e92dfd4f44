"""Declare the command `attach`; pyproject.toml names it as an entry point."""

from __future__ import annotations

from torchprof_tui.trace.core.extensions import CommandExtension

COMMAND = CommandExtension(
    help="record a job that is already running: one rank, or all at the same iteration",
    options="torchprof_attach.command:AttachOptions",
    run="torchprof_attach.command.main:run",
    answers="torchprof_attach.answers:ANSWERS",
    tools="torchprof_attach.mcp_tool:TOOLS",
    screens="torchprof_attach.ui",
)
