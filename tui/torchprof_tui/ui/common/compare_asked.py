"""The messages that ask the app for a comparison, another trace, a recording, and trials of a finding's remedies.

The app imports them before its first frame, which the many other messages would delay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:  # the first frame waits for neither
    from torchprof_tui.runs.recording_request import RecordingRequest
    from torchprof_tui.trace.model.trace import Trace
    from torchprof_tui.ui.common.comparison_request import ComparisonRequest


@dataclass
class CompareAsked(Message):
    """Compare `trace`, which is open and called `label`, with what `request` says."""

    request: ComparisonRequest
    trace: Trace
    label: str


@dataclass
class TraceAsked(Message):
    """Open the trace of this name, together with `other_specs` as the ranks of one run."""

    spec: str
    other_specs: tuple[str, ...] = ()


@dataclass
class RunAsked(Message):
    """Record `request` in folder `cwd`, in place of the screen that asks."""

    request: RecordingRequest
    cwd: str


@dataclass
class TrialsAsked(Message):
    """Measure what the remedies of a finding save, "" for those of all findings."""

    finding: str
