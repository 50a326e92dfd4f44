"""A trace as the rest of Python sees it."""

from __future__ import annotations

from tests.helpers.paths import SAMPLES
from torchprof_tui.trace.loading.load_in_process import load_trace


def test_repr_names_the_file_and_holds_no_columns() -> None:
    path = str(next(SAMPLES.glob("*.json.gz")))
    trace = load_trace(path, cache=False)
    assert repr(trace) == f"<Trace {path!r}: {len(trace)} events on {len(trace.lanes)} lanes>"
