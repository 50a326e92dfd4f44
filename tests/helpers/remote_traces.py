"""Read and open remote traces in tests."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.loading.opener import SingleTraceOpener
from torchprof_tui.trace.loading.progress import Progress
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.sources.source import Source, open_source


def read(source: Source) -> bytes:
    """Read all text of a source, then close it."""
    try:
        return b"".join(source.blocks())
    finally:
        source.close()


def refusal(spec: str) -> str:
    """Return the one-line error of reading a source that must fail, without the name that it begins with."""
    with pytest.raises(TraceError) as caught:
        read(open_source(spec))
    line = str(caught.value)
    assert line.isprintable()
    assert line.startswith(f"{spec}: ")
    return line.removeprefix(f"{spec}: ")


async def opened(opening: SingleTraceOpener) -> tuple[Trace, list[Progress]]:
    """Open a trace: the trace and all progress reports. The caller closes `opening`."""
    reports: list[Progress] = []
    opening.start()
    return await opening.load_trace(reports.append), reports


def same(one: Trace, other: Trace) -> None:
    """Assert that two traces have the same events in the same order."""
    for name in ("start", "duration", "name", "lane", "row", "parent", "self_duration", "correlation"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.names == other.names
    assert asdict(one.counts) == asdict(other.counts)
