"""Create the screen of trials from the explorer: of the run that recorded its trace."""

from __future__ import annotations

from dataclasses import replace

from torchprof_try.recorded_run import read_recorded_run
from torchprof_try.trials import Trials
from torchprof_try.ui.try_screen import TryScreen

PROCESS_SECONDS = 60.0


def create_screen(trace: str, finding: str) -> TryScreen:
    """Create a screen that tries the remedies of a finding, "" for all findings. Raises TraceError."""
    return TryScreen(Trials(replace(read_recorded_run(trace), finding=finding, limit=PROCESS_SECONDS)))
