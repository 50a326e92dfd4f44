"""Export of a time range of the open trace as a small trace: the suggested file name, and the result as a message."""

from __future__ import annotations

import re
from pathlib import Path

from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.messages import SliceWritten

_TRACE_SUFFIX = re.compile(r"(\.pt)?(\.trace)?\.json(\.\w+)?$")
_UNSAFE_CHARACTERS = re.compile(r"[^\w.+-]+")
_MAX_STEM_LENGTH = 80


def suggest_file_name(trace: Trace, t0: int, t1: int) -> str:
    """Suggest a file name in the current folder: the trace's name and the range in µs. `t0`, `t1` in ns."""
    stem = (
        _UNSAFE_CHARACTERS.sub("_", _TRACE_SUFFIX.sub("", re.split(r"[/:\\]", trace.label)[-1]))[:_MAX_STEM_LENGTH]
        or "trace"
    )
    return f"{stem}_{t0 / 1000:.0f}-{t1 / 1000:.0f}us.json.gz"


def export_slice(trace: Trace, t0: int, t1: int, name: str) -> SliceWritten:
    """Write the slice between two times, ns, unless the file exists; return a message with the outcome.

    Call it on a worker thread: a large trace takes seconds.
    """
    # deferred: the writer imports the trace reader, which the UI process otherwise does not need
    from torchprof_tui.analysis.slicing.slice_writer import SliceError, write_slice
    from torchprof_tui.ui.explorer.slice_messages import format_slice_result

    out = Path(name).expanduser()
    if out.exists():
        return SliceWritten(f"{out} is there already; nothing was overwritten", failed=True)
    try:
        return SliceWritten(format_slice_result(write_slice(trace, t0, t1, out)), failed=False)
    except SliceError as error:
        return SliceWritten(str(error), failed=True)
    except LookupError as error:
        return SliceWritten(str(error.args[0]), failed=True)
    except OSError as error:
        return SliceWritten(f"{out}: {error.strerror or error}", failed=True)
