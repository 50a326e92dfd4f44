"""The screen of a memory snapshot without a trace: its numbers, its keys, goldens, and files that are none."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from textual.pilot import Pilot

from tests.helpers.explorer_app import settled, until
from tests.helpers.golden_files import cases_at_every_size, compare_golden, text_on_screen
from tests.helpers.memory_fixtures import MEMORY
from torchprof_tui.analysis.memory.snapshots.snapshot_file import BlockState
from torchprof_tui.app import TorchprofApp
from torchprof_tui.cli import main
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.ui.memory.snapshot_rows import HEADERS, NO_HISTORY, SnapshotList, draw_segment
from torchprof_tui.ui.memory.snapshot_screen import SnapshotScreen

pytestmark = pytest.mark.painted

SNAPSHOT, OOM = MEMORY / "snapshot.pickle.gz", MEMORY / "oom.pickle.gz"


@asynccontextmanager
async def opened(path: Path, size: tuple[int, int] = (120, 40)) -> AsyncIterator[tuple[SnapshotScreen, Pilot[Any]]]:
    """Open a file as the program does; yield its screen when it was read."""
    opener = resolve_specs([str(path)], list_folders=True).create_opener(cache=False)
    opener.start()
    app = TorchprofApp(opener)
    async with app.run_test(size=size) as pilot:
        await until(pilot, app.lanes_ready.is_set)
        await settled(pilot)
        screen = app.screen
        assert isinstance(screen, SnapshotScreen)
        yield screen, pilot


async def press(pilot: Pilot[Any], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await settled(pilot)


async def test_lists_are_those_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", str(SNAPSHOT), "--top", "0"]) == 0
    printed = capsys.readouterr().out
    async with opened(SNAPSHOT) as (screen, pilot):
        assert screen.read is not None
        lines = {row.cells[-1]: row.cells for row in screen.read.rows}
        await press(pilot, "tab", "tab", "tab")
        segments = screen.read.rows
    assert len(lines) > 10
    for label, cells in lines.items():
        row = next(line for line in printed.splitlines() if line.rstrip().endswith(label))
        assert row.split()[: len(cells[0].split())] == cells[0].split()
    assert len(segments) == 27


async def test_a_list_is_copied_with_its_own_header_while_the_next_one_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened(SNAPSHOT) as (screen, pilot):
        copied: list[str] = []
        monkeypatch.setattr(screen.app, "copy_to_clipboard", copied.append)
        screen.action_next_panel(3)  # its rows are not there before the next message is handled
        screen.action_copy(True)
        assert screen.shown_list is SnapshotList.SEGMENTS
        assert copied[0].splitlines()[0].split("\t") == list(HEADERS[SnapshotList.LINE])
        assert "line" in screen._status.message
        await settled(pilot)
        screen.action_copy(True)
        assert copied[1].splitlines()[0].startswith("size\tin use")


async def test_what_is_listed_sums_to_the_curve_at_any_time() -> None:
    async with opened(SNAPSHOT) as (screen, pilot):
        for keys in (("p",), ("home",), ("right", "right"), ("end",)):
            await press(pilot, *keys)
            device, read = screen.device, screen.read
            assert device is not None
            assert read is not None
            assert read.state is not None
            position = read.query.position
            curve = device.device.requested_curve
            assert read.state.requested == int(curve[position])
            alive = int(device.device.history.size[read.state.alive].sum())  # type: ignore[union-attr]
            assert alive + read.state.older == read.state.requested
        assert position == len(curve) - 1


@pytest.mark.long
async def test_a_snapshot_that_cannot_be_read_above_another_is_no_failure_of_the_program(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pickle"
    broken.write_bytes(pickle.dumps({"segments": 7}))
    async with opened(SNAPSHOT) as (_, pilot):
        app: Any = pilot.app
        app._open(str(broken))
        await until(pilot, lambda: getattr(app.screen, "path", None) == broken and bool(app.screen._problem))
        assert app.failure is None
    async with opened(broken) as (_, pilot):
        first: Any = pilot.app
        assert "broken.pickle" in first.failure


async def test_a_failed_allocation_is_told_at_once() -> None:
    async with opened(OOM) as (screen, pilot):
        assert screen._status.message == "1 allocation failed: tab shows what was asked for"
        await press(pilot, *["tab"] * 4)
        assert screen.shown_list is SnapshotList.FAILURES
        assert screen.read is not None
        assert screen.read.rows[0].cells[:4] == ("1.0 TiB", "139 GiB", "120 MiB", "144 MiB")
        assert "record_memory.py:178" in screen._detail.message


@pytest.mark.long
async def test_without_a_trace_beside_it_says_what_one_would_add(tmp_path: Path) -> None:
    shutil.copy(SNAPSHOT, tmp_path / "s.pickle.gz")
    async with opened(tmp_path / "s.pickle.gz") as (screen, _):
        assert "--profile-memory" in screen._status.message
    (tmp_path / "run.pt.trace.json").write_text("{}", encoding="utf-8")
    async with opened(tmp_path / "s.pickle.gz") as (screen, _):
        assert "run.pt.trace.json" in screen._status.message


async def test_keys_that_cannot_act_say_why() -> None:
    async with opened(SNAPSHOT) as (screen, pilot):
        for key, words in (
            ("}", "no other GPU"),
            ("p", "the cursor is at the peak"),
            ("0", "the whole history"),
            ("up", "the first row"),
            ("s", "the whole history"),
        ):
            await press(pilot, key)
            assert words in screen._status.message, key
        before = screen.viewport
        await press(pilot, "w", "d")
        assert screen.viewport.span < before.span
        await press(pilot, "0", "y")
        assert "clipboard" in screen._status.message
        await press(pilot, "shift+tab")
        assert screen.shown_list is SnapshotList.FINDINGS


async def test_a_snapshot_without_history_shows_its_blocks(tmp_path: Path) -> None:
    blocks = [
        {"address": 0, "size": 1 << 20, "requested_size": 1 << 20, "state": "active_allocated", "frames": []},
        {"address": 1 << 20, "size": 1 << 20, "requested_size": 0, "state": "inactive", "frames": []},
    ]
    segment = {"device": 0, "address": 0, "total_size": 2 << 20, "stream": 0, "segment_type": "large", "blocks": blocks}
    path = tmp_path / "no_history.pickle"
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": []}))
    async with opened(path) as (screen, pilot):
        assert screen.read is not None
        assert [row.cells[0] for row in screen.read.rows] == ["1.0 MiB"]
        assert NO_HISTORY in text_on_screen(screen).replace("\n", " ") or "no history" in text_on_screen(screen)
        await press(pilot, "p", "right", "tab", "tab")
        assert screen.read.rows[0].cells[:2] == ("1.0 MiB", "100 %")
        device = screen.device
        assert device is not None
        assert draw_segment(device.device, 0) == "█" * 12 + "·" * 12


async def test_the_map_of_a_segment_has_its_bytes() -> None:
    async with opened(OOM) as (screen, _):
        assert screen.device is not None
        device = screen.device.device
    blocks = device.snapshot.blocks
    for segment in device.segments.tolist():
        rows = slice(int(device.snapshot.segments.first[segment]), int(device.snapshot.segments.first[segment + 1]))
        drawn = draw_segment(device, segment)
        is_used = blocks.state[rows] == BlockState.ALLOCATED
        assert ("█" * len(drawn) == drawn) == bool(is_used.all())
        assert (set(drawn) == {"·"}) == bool(not np.any(is_used))


def test_a_file_that_is_none_is_one_line_and_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.pickle"
    path.write_bytes(pickle.dumps({"weights": [1, 2, 3]}))
    assert main(["snapshot", str(path), "-o", str(tmp_path / "out.txt")]) == 2
    printed = capsys.readouterr()
    assert "a pickle, but not a memory snapshot" in printed.err
    assert len(printed.err.strip().splitlines()) == 1


@cases_at_every_size(
    "name,path,keys",
    [
        ("snapshot-lines", SNAPSHOT, ("down",)),
        ("snapshot-segments", OOM, ("tab", "tab", "tab", "down")),
        ("snapshot-failures", OOM, ("tab",) * 4),
        ("help-snapshot", SNAPSHOT, ("question_mark",)),
    ],
)
async def test_screen(name: str, path: Path, keys: tuple[str, ...], size: tuple[int, int]) -> None:
    async with opened(path, size) as (screen, pilot):
        await press(pilot, *keys)
        drawn = text_on_screen(screen.app.screen)
    compare_golden(name, size, drawn)
