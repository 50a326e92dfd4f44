"""Declare the command `fleet`; pyproject.toml names it as an entry point."""

from __future__ import annotations

from torchprof_tui.trace.core.extensions import CommandExtension

COMMAND = CommandExtension(
    help="compare all ranks of a job: slow hosts and GPUs, late ranks, stalls",
    add_arguments="torchprof_fleet.command.arguments:add_arguments",
    run="torchprof_fleet.command.main:run",
    reads_traces=True,
    answers="torchprof_fleet.answers:ANSWERS",
    tools="torchprof_fleet.mcp_tool:TOOLS",
    screens="torchprof_fleet.ui",
)
