"""Error for a remote folder where a file is needed."""

from __future__ import annotations

import shlex

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.specs.address import ListedTrace
from torchprof_tui.trace.specs.runs_by_name import group_runs


class FolderError(TraceError):
    """The name is a remote folder. `traces`: the traces in it, newest first. `omitted`: how many more there are, at
    least."""

    def __init__(self, spec: str, traces: list[ListedTrace], omitted: int = 0) -> None:
        self.omitted = omitted
        self.spec = spec
        self.traces = traces
        if traces:
            pattern = next((run.pattern for run in group_runs(traces) if run.pattern), "")
            ranks = f", or the ranks of a run: {shlex.quote(pattern)}" if pattern else ""
            super().__init__(f"{spec}: a folder; name a file in it, such as {traces[0].spec}{ranks}")
        else:
            super().__init__(f"{spec}: a folder, with no .json or .json.gz file in it")
