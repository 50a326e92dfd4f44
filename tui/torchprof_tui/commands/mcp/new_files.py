"""Write a slice to a file that did not exist, and leave nothing behind where that fails."""

from __future__ import annotations

import os
from pathlib import Path

from torchprof_tui.analysis.slicing.slice_writer import SliceError, SliceResult, write_slice
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.trace.core.atomic_file import OutputError
from torchprof_tui.trace.model.trace import Trace


def write_new_slice(trace: Trace, times: tuple[int, int], output: Path) -> SliceResult:
    """Write a range of a trace, ns. The name is taken first, so that no file of another program is replaced."""
    try:
        os.close(os.open(output, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0), 0o666))
    except FileExistsError:
        raise UsageError(f"output: {output}: exists; nothing is overwritten, choose another name") from None
    try:
        return write_slice(trace, *times, output)
    except BaseException as error:
        output.unlink(missing_ok=True)
        if isinstance(error, OutputError | SliceError | LookupError):
            raise UsageError(f"slice: {error.args[0] if error.args else error}") from error
        raise
