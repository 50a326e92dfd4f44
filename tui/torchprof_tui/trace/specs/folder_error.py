"""Define the error for a remote folder that was named where a file is needed."""

from __future__ import annotations

import shlex

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.specs.address import Listed
from torchprof_tui.trace.specs.rank_groups import runs_in


class FolderError(TraceError):
    """This is a folder on another host; `found` are the traces in it, newest first."""

    def __init__(self, spec: str, found: list[Listed]) -> None:
        self.spec = spec
        self.found = found
        if found:
            pattern = next((run.pattern for run in runs_in(found) if run.pattern), "")
            ranks = f", or the ranks of a run: {shlex.quote(pattern)}" if pattern else ""
            super().__init__(f"{spec}: a folder; name a file in it, such as {found[0].spec}{ranks}")
        else:
            super().__init__(f"{spec}: a folder, with no .json or .json.gz file in it")
