"""Declare the command `fleet`; pyproject.toml names it as an entry point."""

from __future__ import annotations

from torchprof_tui.trace.core.extensions import CommandExtension

COMMAND = CommandExtension(
    help="compare all ranks of a job: slow hosts and GPUs, late ranks, stalls",
    options="torchprof_fleet.command:FleetOptions",
    run="torchprof_fleet.command.main:run",
    answers="torchprof_fleet.answers:ANSWERS",
    tools="torchprof_fleet.mcp_tool:TOOLS",
    screens="torchprof_fleet.ui",
)
