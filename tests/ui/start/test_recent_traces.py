"""The list of recent traces: whatever the file holds, the start screen opens."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from textual.pilot import Pilot
from textual.widgets import OptionList

from tests.helpers.long_run import keep_some
from torchprof_samples import SAMPLES
from torchprof_tui.app import TorchprofApp
from torchprof_tui.trace.core.typed_json import MAX_TEXT
from torchprof_tui.ui.common.number_format import format_age
from torchprof_tui.ui.start.recent_traces import MAX_ENTRIES, add_recent_trace, list_recent_traces, state_file
from torchprof_tui.ui.start.start_screen import StartScreen, list_completions


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder, without recent traces."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def store(text: str | bytes) -> None:
    path = state_file()
    assert path is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


async def until(pilot: Pilot[None], condition: Callable[[], object]) -> None:
    for _ in range(6_000):
        if condition():
            return
        await pilot.pause(0.01)
    raise AssertionError("the condition was not met in time")


def rows(app: TorchprofApp) -> list[str]:
    return [str(option.prompt) for option in app.screen.query_one(OptionList).options]


HOSTILE: dict[str, str | bytes] = {
    "infinite": '[["host:a", Infinity]]',
    "huge": '[["host:a", 1e300], ["host:b", -1e300], ["host:c", 1e308]]',
    "overflow": '[["host:a", 1e400]]',
    "text": '[["host:a", "yesterday"]]',
    "nul": r'[["/a\u0000b", 1]]',
    "duplicates": json.dumps([["host:a", 1], ["host:a", 2], ["host:a", 3]]),
    "escapes": json.dumps([["host:\x1b[2J\n\u202ename", 1]]),
    "surrogate": json.dumps([["host:\udcff", 1], [os.fsdecode(b"/caf\xe9.json"), 1]]),
    "nested": "[" * 100_000,
    "many": json.dumps([[f"host:{number}", number] for number in range(900)]),
    "object": '{"host:a": 1}',
    "binary": b"\xff\x00\x01",
}


@pytest.mark.parametrize("name", keep_some(HOSTILE, 1))
async def test_the_start_screen_opens_with_any_list(name: str) -> None:
    store(HOSTILE[name])
    app = TorchprofApp()
    async with app.run_test(size=(120, 40)) as pilot:
        assert isinstance(app.screen, StartScreen)
        await until(pilot, lambda: len(rows(app)) > len(SAMPLES))
        await app.workers.wait_for_complete()
        await pilot.press("up", "down", "down")
        assert not any("\x1b" in row or "\udcff" in row for row in rows(app))
        assert len(list_recent_traces()) <= MAX_ENTRIES


@pytest.mark.parametrize("name", HOSTILE)
def test_a_trace_can_be_added_to_any_list(name: str) -> None:
    store(HOSTILE[name])
    add_recent_trace("host:new.json")
    assert list_recent_traces()[0].spec == "host:new.json"


def test_times_that_cannot_be_are_moved_and_duplicates_are_dropped() -> None:
    store('[["host:a", 1e300], ["host:b", -1e300], ["host:a", 5]]')
    now = time.time()
    first, second = list_recent_traces()
    assert (first.spec, second.spec, second.opened_at) == ("host:a", "host:b", 0.0)
    assert now <= first.opened_at <= time.time()


def test_a_spec_that_cannot_be_stored_does_not_lose_the_list() -> None:
    add_recent_trace("host:kept.json")
    for spec in ("host:" + "x" * MAX_TEXT, "host:a\0b", "host:\ud800", ""):
        add_recent_trace(spec)
    assert [trace.spec for trace in list_recent_traces()] == ["host:kept.json"]


@given(st.binary(max_size=100) | st.text().map(str.encode))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_a_list(data: bytes) -> None:
    store(data)
    assert isinstance(list_recent_traces(), list)


@pytest.mark.parametrize("case", keep_some(["no home", "a file in its place", "vanished folder"], 1))
async def test_without_a_state_folder_the_list_is_missing(
    case: str, alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if case == "no home":
        monkeypatch.delenv("XDG_STATE_HOME")
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    elif case == "a file in its place":
        (alone / "file").touch()
        monkeypatch.setenv("XDG_STATE_HOME", str(alone / "file"))
    else:
        alone.rmdir()
    app = TorchprofApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(rows(app)) > len(SAMPLES))
        await app.workers.wait_for_complete()
        await pilot.press("r")
        await until(pilot, lambda: app.screen.TITLE == "record")
        await app.workers.wait_for_complete()
        await pilot.press("escape")
    add_recent_trace("host:a.json")
    assert [trace.spec for trace in list_recent_traces()] == (["host:a.json"] if case == "vanished folder" else [])


def test_the_list_is_written_for_this_user_only_and_without_drafts() -> None:
    add_recent_trace("host:a.json")
    path = state_file()
    assert path is not None
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["recent.json"]


def test_a_pasted_nul_has_no_completions() -> None:
    assert list_completions("/a\0b/") == []


def test_ages_that_cannot_be_are_not_shown() -> None:
    infinity = float("inf")
    assert [format_age(age) for age in (infinity, -infinity, float("nan"), 1e300, -1e300)] == [
        "", "just now", "", "", "just now",
    ]  # fmt: skip
