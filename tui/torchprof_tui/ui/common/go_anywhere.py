"""What `:` takes: a time, a step, a panel, a screen, another trace."""

from __future__ import annotations

from torchprof_tui.trace.loading.resolve import SAMPLE_PREFIX

GO_TO = "go to"
"""The label of the prompt."""

GO_TO_HINT = "12ms · #3 · rank 1 · memory, doctor, … · a trace"


def is_trace_name(text: str) -> bool:
    """Return whether a text names a trace: a sample, a path or a URL, rather than a time or a step."""
    return text.startswith((SAMPLE_PREFIX, "~", ".")) or "/" in text or text.endswith((".json", ".gz", ".zst", ".xz"))
