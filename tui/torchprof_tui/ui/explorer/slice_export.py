"""Export of a time range of the open trace as a small trace: the suggested file name, and a line about the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchprof_tui.trace.core.atomic_file import (
    OutputError,
    check_target,
    expand_path,
    make_file_stem,
    shorten_file_name,
)
from torchprof_tui.trace.core.time_format import format_duration, format_time
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.number_format import format_file_size

if TYPE_CHECKING:
    from torchprof_tui.analysis.slicing.slice_writer import SliceResult


def suggest_file_name(trace: Trace, t0: int, t1: int) -> str:
    """Suggest a file name in the current folder: the trace's name and the range in µs. `t0`, `t1` in ns."""
    suffix = f"_{t0 / 1000:.0f}-{t1 / 1000:.0f}us.json.gz"
    return shorten_file_name(make_file_stem(trace.label), suffix)


def export_slice(trace: Trace, t0: int, t1: int, name: str) -> tuple[str, bool]:
    """Write the slice between two times, ns, unless the file exists; return (the outcome, whether it failed).

    Call it on a worker thread: a large trace takes seconds.
    """
    # deferred: the writer imports the trace reader, which the UI process otherwise does not need
    from torchprof_tui.analysis.slicing.slice_writer import SliceError, write_slice

    try:
        out = expand_path(name)
        if check_target(out):
            return (f"{out} exists already and was not overwritten; choose another name", True)
        return (format_slice_result(write_slice(trace, t0, t1, out)), False)
    except (SliceError, OutputError) as error:
        return (str(error), True)
    except LookupError as error:
        return (str(error.args[0]), True)
    except OSError as error:
        return (f"{trace.label}: {error.strerror or error}", True)


def format_slice_result(sliced: SliceResult, with_private: bool = True) -> str:
    """Format the result in one line. It holds names from the trace: clean it before it reaches a terminal.

    `with_private`: name the environment variables and secrets that were left out, too.
    """
    summary = f"{sliced.entries:,} of {sliced.total_entries:,} entries, {format_file_size(sliced.size)}"
    left_out = [*sliced.skipped_keys, *(map(str, sliced.private_values) if with_private else ())]
    skipped = f"; left out: {', '.join(left_out)}" if left_out else ""
    first = sliced.first_start  # ns from time 0 of the whole trace; events of the profiler may start before it
    start = f"at {format_time(first)}" if first >= 0 else f"{format_duration(-first)} before time 0"
    return f"wrote {sliced.path}: {summary}; its start is {start} of the whole trace{skipped}"
