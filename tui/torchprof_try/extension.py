"""Declare the command `try`; pyproject.toml names it as an entry point."""

from __future__ import annotations

from torchprof_tui.trace.core.extensions import CommandExtension

FINDINGS = (
    "alloc-in-step",
    "allocator-retries",
    "anomaly-mode",
    "call-count",
    "compute-bound",
    "cpu-contention",
    "cpu-work",
    "deterministic-algorithms",
    "exposed-comm",
    "fragmentation",
    "fsdp-prefetch",
    "gc-pause",
    "hidden-copy",
    "host-code",
    "input-starved",
    "layout-conversion",
    "memory-bound-elementwise",
    "no-tensor-core",
    "op-loop",
    "optimizer-loop",
    "overhead-bound",
    "pageable-copy",
    "reads-one-by-one",
    "repeated-synchronize",
    "sdpa-math",
    "sync-in-step",
    "tiny-kernels",
    "written-out",
)
"""Findings that a remedy is against: here, so that no other module is imported for the cheatsheet."""

COMMAND = CommandExtension(
    help="try the remedies that a trace suggests, and measure what each wins",
    options="torchprof_try.command:TryOptions",
    run="torchprof_try.command.main:run",
    answers="torchprof_try.answers:ANSWERS",
    tools="torchprof_try.mcp_tool:TOOLS",
    screens="torchprof_try.ui",
    findings=FINDINGS,
    open_finding="torchprof_try.ui.try_screen:create_screen",
)
