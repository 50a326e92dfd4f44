"""What `info` says of a folder on another host: its traces, a line each, newest first."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

from tui.widgets.names import clean
from tui.widgets.units import format_value

if TYPE_CHECKING:
    from tui.trace.source import FolderError


def show_folder(folder: FolderError, as_json: bool) -> None:
    """Print it on stdout; what stands last in a line is what `torchprof-tui` takes to open that trace."""
    if as_json:
        traces = [{"trace": each.spec, "bytes": each.size, "modified": each.modified} for each in folder.found]
        print(json.dumps({"folder": folder.spec, "traces": traces}))
        return
    for each in folder.found:
        print(f"{format_value(each.size, 'bytes'):>9}  {when(each.modified):16}  {clean(each.spec)}")


def when(seconds: float) -> str:
    """A time of change by this machine's clock, to the minute; a dash where it is not known."""
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M") if seconds else "-"
