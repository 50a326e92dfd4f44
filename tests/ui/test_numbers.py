"""Property: the app shows the numbers that the commands print as JSON: table, verdict, chain, path, what if and diff.

The memory screen has its own test of this: ui/memory/test_memory_screen.py. No test compares the fleet screen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from textual.pilot import Pilot
from textual.widgets import Input

import torchprof_tui as tt
from tests.helpers.command_line import read_json_answer
from tests.helpers.diff_app import comparison, lines_of
from tests.helpers.explorer_app import explorer, settled, until
from tests.helpers.long_run import keep_some
from tests.helpers.paths import SAMPLES, SHARED_TRACES
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
from torchprof_tui.ui.table.table_screen import TableScreen

SIZE = (200, 60)
_GROUPINGS = 6
_SHARED = ("gpt2_train_modules_flops.pt.trace.json.gz", "multi_stream_overlap.pt.trace.json.gz")


def list_inputs() -> Iterator[Any]:
    for name in ("train_gpt_stack_memory", "train_images_cpu", "cuda_graph_replay"):
        yield pytest.param(SAMPLES / f"{name}.pt.trace.json.gz", id=name)
    for name in _SHARED:
        missing = pytest.mark.skipif(not (SHARED_TRACES / name).exists(), reason="needs the shared traces")
        yield pytest.param(SHARED_TRACES / name, id=name, marks=missing)


@pytest.fixture(params=keep_some(list_inputs(), 1))
def path(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def read_screen(screen: ExplorerScreen) -> str:
    return " ".join(" ".join(strip.text.split()) for strip in screen.app.screen._compositor.render_strips())


async def open_table(screen: ExplorerScreen, pilot: Pilot[None]) -> TableScreen:
    await settled(pilot)
    await pilot.press("t")
    table = screen.app.screen
    assert isinstance(table, TableScreen)
    await until(pilot, lambda: table._built_sheet is not None)
    await settled(pilot)
    return table


async def test_tables_written_by_the_app(
    capsys: pytest.CaptureFixture[str], path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    groupings: list[str] = []
    async with explorer(load_trace(str(path), cache=False), SIZE) as (screen, pilot):
        table = await open_table(screen, pilot)
        for _ in range(_GROUPINGS):
            by = table._group_by.value
            await pilot.press("e")
            if table._prompt.display:  # else it was not recorded, and the screen says so
                table._prompt._input.value = f"{by}.json"
                await pilot.press("enter")
                await settled(pilot)
                groupings.append(by)
            await pilot.press("b")
            await settled(pilot)
    assert groupings[0] == "name"
    for by in groupings:
        written = json.loads((tmp_path / f"{by}.json").read_text())
        told = read_json_answer(capsys, "table", str(path), "--by", by, "--json")["rows"]
        keys = set(told[0]) & set(written[0])
        assert len(keys) > 5
        assert list_rows(written, keys) == list_rows(told, keys)


def list_rows(rows: list[dict[str, Any]], keys: set[str]) -> list[str]:
    """Return each row as text, sorted: the order is that of the column that the user sorts by."""
    return sorted(json.dumps({key: row.get(key) or None for key in sorted(keys)}) for row in rows)


@pytest.mark.long
async def test_the_verdict_and_the_first_finding(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    told = read_json_answer(capsys, "check", str(path), "--json")
    found = [pattern for pattern in (*told["patterns"], *told["notes"]) if pattern["state"] == "fired"]
    async with explorer(load_trace(str(path), cache=False), SIZE) as (screen, pilot):
        await settled(pilot)
        said = read_screen(screen)
        assert " ".join(told["verdict"]["first"].split())[:60] in said
        await pilot.press("c")
        await settled(pilot)
        said = read_screen(screen)
    assert found[0]["id"] in said


async def test_the_chain_of_the_longest_kernel(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    trace = tt.open(str(path))
    kinds = trace.events.kind.to_numpy()
    events = np.flatnonzero(kinds == ("kernel" if (kinds == "kernel").any() else "op"))
    event = int(events[np.argmax(trace.events.duration_ns[events])])
    chain = trace.chain(event)
    async with explorer(load_trace(str(path), cache=False), SIZE) as (screen, pilot):
        await settled(pilot)
        screen.view_state.select(event)
        screen._refresh_widgets()
        await pilot.press("l")
        await settled(pilot)
        said = read_screen(screen)
    for hop in chain.chain:
        assert " ".join(hop.name.split())[:12] in said
        assert format_duration(hop.duration_ns) in said


@pytest.mark.long
async def test_the_critical_path(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    """Of the step of median duration, which the command asks about and the app after `C` on its annotation."""
    told = read_json_answer(capsys, "critical-path", str(path), "--json")
    shown = load_trace(str(path), cache=False)
    async with explorer(shown, SIZE) as (screen, pilot):
        await settled(pilot)
        if told["step"] is not None:
            screen.view_state.select(next(step.event for step in shown.steps if step.name == told["step"]))
        await pilot.press("C")
        await settled(pilot)
        said = read_screen(screen)
    error = told["replay_error"]
    assert (f"a replay of the recorded dependencies takes {abs(error) * 100:.1f} %" in said) is (abs(error) >= 0.01)
    assert format_duration(round(told["duration_us"] * 1000)) in said
    for each in told["segments"][:5]:
        numbers = (format_share(each["share"]), format_duration(round(each["us"] * 1000)), f"{each['count']:,}")
        assert f"{' '.join(numbers)} {each['kind']}" in said


async def test_a_prediction(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    """Of the step that the command asks about; `P` asks in the app."""
    change = "cpu=0.5"
    told = read_json_answer(capsys, "what-if", str(path), "--set", change, "--json")
    shown = load_trace(str(path), cache=False)
    async with explorer(shown, SIZE) as (screen, pilot):
        await settled(pilot)
        if told["step"] is not None:
            screen.view_state.select(next(step.event for step in shown.steps if step.name == told["step"]))
        await pilot.press(":", *"what-if", "enter")
        await settled(pilot)
        screen._prompt.query_one(Input).value = change
        await pilot.press("enter")
        await settled(pilot)
        said = read_screen(screen)
    assert told["predicted_us"] <= told["before_us"]
    times = [format_duration(round(told[f"{name}_us"] * 1000)) for name in ("before", "predicted")]
    assert all(time in said for time in times)


async def test_a_diff(capsys: pytest.CaptureFixture[str]) -> None:
    a, b = (SAMPLES / f"attention_{name}.pt.trace.json.gz" for name in ("naive", "flash"))
    told = read_json_answer(capsys, "diff", str(a), str(b), "--json")
    async with comparison(load_trace(str(a), cache=False), load_trace(str(b), cache=False), SIZE) as (screen, _):
        said = " ".join(" ".join(lines_of(screen)).split())
    assert told["verdict"]["first"].partition(";")[0] in said  # the largest part has a line of its own
    cause = told["verdict"]["causes"][0]
    assert f"{cause['name']}: {format_duration(round(cause['delta_us'] * 1000))}" in said
    assert len(told["parts"]) > 4
    for part in sorted(told["parts"], key=lambda part: -abs(part["delta_us"]))[:4]:
        times = [format_duration(round(part[f"{side}_us"] * 1000)) for side in ("a", "b", "delta")]
        assert part["name"].removeprefix("GPU: ") in said
        assert all(time.removeprefix("-") in said for time in times), (part, said)
