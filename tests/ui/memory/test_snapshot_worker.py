"""A snapshot beside a trace: its stacks are on the memory screen."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest

from tests.helpers.explorer_app import explorer, settled
from tests.helpers.memory_fixtures import MEMORY
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.memory.memory_screen import MemoryScreen


def open_beside(folder: Path, snapshot: bytes) -> Trace:
    file = folder / "start.pt.trace.json"
    file.write_bytes(lzma.decompress((MEMORY / "start.pt.trace.json.xz").read_bytes()))
    (folder / "memory_snapshot.pickle").write_bytes(snapshot)
    return load_trace(str(file), cache=False)


@pytest.mark.long
async def test_stacks_of_the_snapshot_beside_the_trace_are_shown(tmp_path: Path) -> None:
    shown = open_beside(tmp_path, gzip.decompress((MEMORY / "snapshot.pickle.gz").read_bytes()))
    async with explorer(shown, (120, 40)) as (screen, pilot):
        await pilot.press("M")
        await settled(pilot)
        memory = screen.app.screen
        assert isinstance(memory, MemoryScreen)
        assert memory._status.message == "stacks of 553 allocations from memory_snapshot.pickle"
        details = []
        for _ in range(12):
            assert memory.state is not None
            details.append(memory.state.detail)
            await pilot.press("down")
            await settled(pilot)
        assert any(" · stack: " in detail and "record_memory.py" in detail for detail in details)


@pytest.mark.long
async def test_a_hostile_snapshot_is_refused_in_a_line(tmp_path: Path) -> None:
    shown = open_beside(tmp_path, b"\x80\x04cos\nsystem\n(S'true'\ntR.")
    async with explorer(shown, (120, 40)) as (screen, pilot):
        await pilot.press("M")
        await settled(pilot)
        memory = screen.app.screen
        assert isinstance(memory, MemoryScreen)
        assert "the snapshot beside the trace is not read" in memory._status.message
        assert memory.device is not None
