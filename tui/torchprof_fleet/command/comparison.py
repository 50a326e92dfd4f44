"""Compare the ranks in local files, without progress and questions: what the MCP server asks."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial

from torchprof_fleet.analysis.fleet import NoRanksError
from torchprof_fleet.analysis.report import FleetReport, compare_fleet
from torchprof_fleet.analysis.sketch_parquet import EXTRA
from torchprof_fleet.command.local_pool import sketch_locally
from torchprof_fleet.command.sketching import SketchedFleet, sketch_all
from torchprof_fleet.command.sources import list_sources
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.trace.core.core_count import count_cores
from torchprof_tui.trace.core.optional_modules import import_extra


def compare_sources(paths: Sequence[str]) -> tuple[FleetReport, int]:
    """Sketch the traces of some folders on this machine and compare their ranks. Raises UsageError.

    Returns the report and how many sketches were read from the cache.
    """
    import_extra("pyarrow", EXTRA)
    with contextlib.ExitStack() as stack:
        traces, lost = list_sources(paths, stack)
    if not traces:
        raise UsageError(lost[0].line if lost else "no traces")
    sketched = sketch_all(traces, partial(sketch_locally, jobs=count_cores()))
    everything = SketchedFleet(sketched.sketches, (*lost, *sketched.lost), sketched.reused)
    return compare_sketched(everything), sketched.reused


def compare_sketched(sketched: SketchedFleet) -> FleetReport:
    """Compare sketched ranks. Raises UsageError where no file is of a rank that can be compared."""
    try:
        return compare_fleet(sketched.sketches, sketched.lost)
    except NoRanksError as error:
        raise UsageError(str(NoRanksError((*sketched.lost, *error.left_out)))) from error
