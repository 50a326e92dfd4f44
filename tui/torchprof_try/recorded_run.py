"""Build the request of trials from a trace: the run that recorded it, if this user made that run."""

from __future__ import annotations

import os
import shlex

from torchprof_try.trials import TrialRequest
from torchprof_tui.runs.history import read_request
from torchprof_tui.trace.core.errors import TraceError

SUFFIXES = (".json", ".json.gz", ".pt.trace", ".pftrace")
"""Of traces, among which nobody's program is."""


def is_recorded_run(words: tuple[str, ...]) -> bool:
    """Tell whether a command line names a trace where it would name a program."""
    return len(words) == 1 and words[0].endswith(SUFFIXES) and os.path.isfile(words[0])


def read_recorded_run(trace: str) -> TrialRequest:
    """Read what was run for a trace, with the interpreter, the folder and the step of that run.

    Only a run that this user has started with this program is repeated: the file beside a trace may have come with it.
    Raises TraceError.
    """
    stored = read_request(trace)
    if stored is None:
        raise TraceError("it is unknown how this trace was recorded; name the program: torchprof-tui try -- python …")
    command = shlex.join(stored.request.command)
    if not stored.is_own:
        raise TraceError(f"this run was not made by you; if you trust it: torchprof-tui try -- {command}")
    words = list(stored.request.options)
    if "--nproc" in words:
        ranks = words[words.index("--nproc") + 1]
        raise TraceError(f"run --nproc is not repeated; try -- torchrun --nproc-per-node {ranks} FILE.py")
    step = words[words.index("--step") + 1] if "--step" in words else "auto"
    if step in ("none", "optimizer"):
        step = "auto"
    return TrialRequest(tuple(stored.request.command), stored.request.python, step=step, cwd=stored.cwd)
