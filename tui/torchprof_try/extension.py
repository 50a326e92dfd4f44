"""Declare the command `try`; pyproject.toml names it as an entry point."""

from __future__ import annotations

from torchprof_tui.trace.core.extensions import CommandExtension

COMMAND = CommandExtension(
    help="try the remedies that a trace suggests, and measure what each wins",
    options="torchprof_try.command:TryOptions",
    run="torchprof_try.command.main:run",
    answers="torchprof_try.answers:ANSWERS",
    tools="torchprof_try.mcp_tool:TOOLS",
    screens="torchprof_try.ui",
)
