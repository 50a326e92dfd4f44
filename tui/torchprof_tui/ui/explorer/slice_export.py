"""Export of a time range of the open trace as a small trace: the suggested file name, and the result as a message."""

from __future__ import annotations

import re
from dataclasses import dataclass

from textual.message import Message

from torchprof_tui.trace.core.atomic_file import OutputError, check_target, expand_path, shorten_file_name
from torchprof_tui.trace.model.trace import Trace


@dataclass
class SliceWritten(Message):
    """A slice of the trace was written, or failed to be: `line` reports which."""

    line: str
    failed: bool


_TRACE_SUFFIX = re.compile(r"(\.pt)?(\.trace)?\.json(\.\w+)?$")
_UNSAFE_CHARACTERS = re.compile(r"[^\w.+-]+")
_MAX_STEM_LENGTH = 80


def suggest_file_name(trace: Trace, t0: int, t1: int) -> str:
    """Suggest a file name in the current folder: the trace's name and the range in µs. `t0`, `t1` in ns."""
    stem = _UNSAFE_CHARACTERS.sub("_", _TRACE_SUFFIX.sub("", re.split(r"[/:\\]", trace.label)[-1]))
    suffix = f"_{t0 / 1000:.0f}-{t1 / 1000:.0f}us.json.gz"
    return shorten_file_name(stem[:_MAX_STEM_LENGTH] or "trace", suffix)


def export_slice(trace: Trace, t0: int, t1: int, name: str) -> SliceWritten:
    """Write the slice between two times, ns, unless the file exists; return a message with the outcome.

    Call it on a worker thread: a large trace takes seconds.
    """
    # deferred: the writer imports the trace reader, which the UI process otherwise does not need
    from torchprof_tui.analysis.slicing.slice_writer import SliceError, write_slice
    from torchprof_tui.ui.explorer.slice_messages import format_slice_result

    try:
        out = expand_path(name)
        if check_target(out):
            return SliceWritten(f"{out} exists already and was not overwritten; choose another name", failed=True)
        return SliceWritten(format_slice_result(write_slice(trace, t0, t1, out)), failed=False)
    except (SliceError, OutputError) as error:
        return SliceWritten(str(error), failed=True)
    except LookupError as error:
        return SliceWritten(str(error.args[0]), failed=True)
    except OSError as error:
        return SliceWritten(f"{trace.label}: {error.strerror or error}", failed=True)
