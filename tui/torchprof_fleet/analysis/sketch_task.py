"""Sketch one file in another process. The process that distributes the files imports this module, not the decoders."""

from __future__ import annotations

import importlib
import os

from torchprof_tui.trace.core.process_state import JOBS
from torchprof_tui.trace.core.records import record


@record
class SketchResult:
    """The sketch of one file as Parquet; `data` b"" where it could not be made, for `reason`."""

    spec: str
    data: bytes = b""
    reason: str = ""


def run_sketch_task(spec: str, identity: str | None = None) -> SketchResult:
    """Call `sketch_file`, imported where this runs: decoding takes a third of a second to import.

    One trace is read with one core: other processes and workers of the same machine have traces of their own.
    """
    os.environ.setdefault(JOBS, "1")
    module = importlib.import_module("torchprof_fleet.analysis.sketch_trace")
    result: SketchResult = module.sketch_file(spec, identity)
    return result
