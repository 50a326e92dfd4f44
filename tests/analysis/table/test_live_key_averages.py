"""Test the table against `key_averages()` of the torch that is installed, on a run recorded now.

`nox -s torch` runs this file with torch 2.11, 2.13 and the newest. With stacks, torch 2.13 counts each Python frame as
a row, whose time it takes from the annotations around it: a regression. Since torch 2.14 frames are no rows, as before
2.13 and as in this program's table; the self times of annotations still lack them.
"""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.later_imports import import_later
from tests.helpers.long_run import keep_some
from torchprof_tui.analysis.table.groups import Profile
from torchprof_tui.analysis.table.profiler_table import ProfilerTable
from torchprof_tui.trace.loading.load_in_process import load_trace

torch = import_later("torch")
pytestmark = pytest.mark.torch

_VERSION = tuple(int(part) for part in version("torch").split(".")[:2])
COUNTS_FRAMES = _VERSION == (2, 13)
SUBTRACTS_FRAMES = _VERSION >= (2, 13)
_FRAME = re.compile(r"\(\d+\): |^<built-in |^nn\.Module: ")
"""What the profiler calls a Python frame: `file.py(12): name`, a built-in function, a module's call."""

OPTIONS = {
    "plain": {},
    "shapes and memory": {"record_shapes": True, "profile_memory": True},
    "stacks": {"with_stack": True},
    "everything": {"with_stack": True, "record_shapes": True, "profile_memory": True, "with_modules": True},
}


def record(path: Path, **options: bool) -> list[Any]:
    """Record three training steps on the CPU; return torch's rows, and the trace in the file."""
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options) as profiler:
        for _ in range(3):
            with torch.profiler.record_function("training step"):
                optimizer.zero_grad()
                model(torch.randn(4, 32)).sum().backward()
                optimizer.step()
    profiler.export_chrome_trace(str(path))
    return list(profiler.key_averages())


def totals_of_torch(rows: list[Any]) -> list[tuple[str, int, int]]:
    """(name, calls, CPU time in ns) in torch's order; it sums floats of µs with three decimals."""
    return [(row.key, row.count, round(row.cpu_time_total * 1000)) for row in rows]


def totals_of(table: ProfilerTable) -> list[tuple[str, int, int]]:
    return list(zip(table.names, table.calls.tolist(), table.cpu.tolist(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("options", keep_some(OPTIONS.values(), 2), ids=OPTIONS)
def test_a_run_recorded_now_has_torchs_rows(options: dict[str, bool], tmp_path: Path) -> None:
    rows = record(tmp_path / "trace.json", **options)
    table = Profile(load_trace(str(tmp_path / "trace.json"), cache=False)).build_table()
    frames = [row for row in rows if _FRAME.search(row.key)]
    assert bool(frames) == (COUNTS_FRAMES and "with_stack" in options)
    rows = [row for row in rows if not _FRAME.search(row.key)]
    assert totals_of(table) == totals_of_torch(rows)
    self_times = [(row.key, round(row.self_cpu_time_total * 1000)) for row in rows]
    if not (SUBTRACTS_FRAMES and "with_stack" in options):
        assert list(zip(table.names, table.self_cpu.tolist(), strict=True)) == self_times
    for row, (name, self_time) in enumerate(self_times):  # what torch gives to frames since 2.13 is this row's own
        assert table.self_cpu[row] >= self_time, name
        assert table.self_cpu[row] == self_time or name in ("training step", *_optimizer_calls(rows)), name


def _optimizer_calls(rows: list[Any]) -> list[str]:
    """The annotations of the optimizer, which is Python and calls ops from frames."""
    return [row.key for row in rows if row.key.startswith("Optimizer.")]
