"""Sketch one file in another process. The process that distributes the files imports this module, not the decoders."""

from __future__ import annotations

import importlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SketchResult:
    """The sketch of one file as Parquet; `data` b"" where it could not be made, for `reason`."""

    spec: str
    data: bytes = b""
    reason: str = ""


def run_sketch_task(spec: str, identity: str | None = None) -> SketchResult:
    """Call `sketch_file`, imported where this runs: decoding takes a third of a second to import."""
    module = importlib.import_module("torchprof_tui.analysis.fleet.sketch_file")
    result: SketchResult = module.sketch_file(spec, identity)
    return result
