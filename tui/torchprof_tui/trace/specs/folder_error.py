"""Error for a folder where a file is needed: a remote one, or one with several recordings."""

from __future__ import annotations

import shlex

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.specs.address import ListedTrace
from torchprof_tui.trace.specs.runs_by_name import group_recordings


class FolderError(TraceError):
    """The name is a remote folder, or a local one with several recordings.

    `traces`: the traces in it, newest first. `omitted`: how many more there are, at least.
    """

    def __init__(self, spec: str, traces: list[ListedTrace], omitted: int = 0) -> None:
        self.omitted = omitted
        self.spec = spec
        self.traces = traces
        recordings = group_recordings(traces)
        if len(recordings.all) > 1:
            super().__init__(f"{spec}: a folder with {recordings.describe()}")
        elif traces:
            pattern = next((run.pattern for run in recordings.all if run.pattern), "")
            ranks = f", or the ranks of a run: {shlex.quote(pattern)}" if pattern else ""
            super().__init__(f"{spec}: a folder; name a file in it, such as {traces[0].spec}{ranks}")
        else:
            super().__init__(f"{spec}: a folder, with no .json or .json.gz file in it")
