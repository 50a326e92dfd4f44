"""The start and loading screens in the real app: the lists, opening a trace, and failures."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from tests.helpers.long_run import keep_some
from tests.helpers.rank_traces import late_rank
from torchprof_samples import SAMPLES, find
from torchprof_tui.app import TorchprofApp
from torchprof_tui.runs.history import save_request
from torchprof_tui.runs.recording_request import RecordingRequest
from torchprof_tui.trace.loading.opener import SingleTraceOpener
from torchprof_tui.trace.loading.progress import Progress
from torchprof_tui.trace.specs.address import ListedTrace
from torchprof_tui.trace.storage import disk_cache
from torchprof_tui.ui.common.compare_asked import TraceAsked
from torchprof_tui.ui.common.number_format import format_age
from torchprof_tui.ui.start import recent_traces
from torchprof_tui.ui.start.loading_screen import LoadingScreen, format_bar, format_counters
from torchprof_tui.ui.start.start_screen import PathInput, StartScreen, list_completions

SAMPLE = find("matmul_add_64_cold_eager").path


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder, without recent traces."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    for _ in range(12_000):
        if condition():
            return
        await pilot.pause(0.01)
    raise AssertionError("the condition was not met in time")


def options(app: TorchprofApp) -> list[str]:
    return [str(option.prompt) for option in app.screen.query_one(OptionList).options]


def explored(app: TorchprofApp) -> bool:
    return type(app.screen).__name__ == "ExplorerScreen"


def shown(app: TorchprofApp, selector: str) -> str:
    return str(app.screen.query_one(selector, Static).content)


async def test_the_samples_are_listed_with_a_description() -> None:
    app = TorchprofApp()
    async with app.run_test(size=(160, 48)) as pilot:
        assert isinstance(app.screen, StartScreen)
        await until(pilot, lambda: len(options(app)) > len(SAMPLES))
        for sample in SAMPLES:
            assert any(sample.name in line and sample.ran[:20] in line for line in options(app))
        await until(pilot, lambda: shown(app, "#start-hint") == SAMPLES[0].look)


async def test_enter_opens_the_first_sample_and_it_is_remembered() -> None:
    app = TorchprofApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(options(app)) > len(SAMPLES))
        await pilot.press("enter")
        await until(pilot, lambda: explored(app))
        await until(pilot, lambda: [entry.spec for entry in recent_traces.list_recent_traces()] == [str(SAMPLE)])
        await pilot.press("o")
        await until(pilot, lambda: isinstance(app.screen, StartScreen))
        await until(pilot, lambda: any("opened just now" in line for line in options(app)))
        await pilot.press("escape")
        await until(pilot, lambda: explored(app))


@pytest.mark.long
async def test_a_cache_folder_that_holds_other_things_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "cache" / "thesis").mkdir(parents=True)
    app = TorchprofApp()
    async with app.run_test(size=(120, 40)) as pilot:
        for name in ("matmul_add_64_cold_eager", "attention_flash"):
            app.post_message(TraceAsked(f"sample:{name}"))
            await until(pilot, lambda: explored(app) and name in app.screen.trace.label)  # noqa: B023
            await until(pilot, lambda: [note.title for note in app._notifications].count("no cache") == 1)
    assert os.listdir(tmp_path / "cache") == ["thesis"]


async def test_another_trace_replaces_the_one_before() -> None:
    before = set(disk_cache._open_entries)
    app = TorchprofApp()
    async with app.run_test(size=(120, 40)) as pilot:
        for name in ("matmul_add_64_cold_eager", "attention_flash"):
            app.post_message(TraceAsked(f"sample:{name}"))
            await until(pilot, lambda: explored(app) and name in app.screen.trace.label)  # noqa: B023
            assert len(app.screen_stack) == 2
    assert all(entry.ready for entry in disk_cache._open_entries - before)


@pytest.mark.parametrize("key", ["up", "down"])
async def test_the_arrows_lead_from_the_path_to_the_list(alone: Path, key: str) -> None:
    app = TorchprofApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: bool(options(app)))
        await pilot.press("tab")
        assert isinstance(app.focused, PathInput)
        before = app.screen.query_one(OptionList).highlighted
        await pilot.press(key)
        assert isinstance(app.focused, OptionList)
        assert app.focused.highlighted != before  # nothing was typed: it moves as in the list


@pytest.mark.long
async def test_enter_without_a_path_opens_the_row_that_is_highlighted(alone: Path) -> None:
    app = TorchprofApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: bool(options(app)))
        await pilot.press("down", "down", "tab", "enter")
        await until(pilot, lambda: app.screen.TITLE == "explorer")


async def test_traces_in_the_folder_are_found(alone: Path) -> None:
    shutil.copy(SAMPLE, alone / "mine.pt.trace.json.gz")
    (alone / "config.json").write_text(json.dumps({"lr": 0.1}))
    app = TorchprofApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: any("  mine  " in line for line in options(app)))
        assert not any("config.json" in line for line in options(app))


@pytest.mark.long
async def test_the_ranks_in_the_folder_open_as_one(alone: Path) -> None:
    (alone / "ddp").mkdir()
    late_rank(3).write(alone / "ddp")
    shutil.copy(SAMPLE, alone / "other.json.gz")
    app = TorchprofApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: any("all 3 ranks" in line for line in options(app)))
        row = next(k for k, line in enumerate(options(app)) if "all 3 ranks" in line)
        assert options(app)[row].split()[0] == "ddp/rank*.json"
        app.screen.query_one(OptionList).highlighted = row
        await pilot.press("enter")
        await until(pilot, lambda: explored(app))
        assert [rank.number for rank in app.screen.trace.merged_ranks.all] == [0, 1, 2]


async def test_a_remote_folder_opens_again_after_one_of_its_traces() -> None:
    spec = "gpu-box:runs/a.json"
    recent_traces.add_recent_trace(spec)
    recent_traces.add_recent_trace("gpu-box:other.json")
    app = TorchprofApp()
    async with app.run_test(size=(120, 40)) as pilot:
        listed = [ListedTrace(spec, 1000, 0.0), ListedTrace("gpu-box:runs/b.json", 1000, 0.0)]
        await app.switch_screen(StartScreen(remote_folder=("gpu-box:runs/", listed)))
        await until(pilot, lambda: any("gpu-box:other.json" in line for line in options(app)))
        names = [line.split()[0] for line in options(app) if line.strip()]
        assert names[1:3] == ["a.json", "b.json"]
        assert spec not in names


@pytest.mark.parametrize("width", keep_some([100, 118, 130, 150], 1))
async def test_the_summaries_have_room_at_every_width(alone: Path, width: int) -> None:
    (alone / "runs").mkdir()
    shutil.copy(SAMPLE, alone / "runs" / "mine.json.gz")
    os.utime(alone / "runs" / "mine.json.gz", (1, 1))
    app = TorchprofApp()
    async with app.run_test(size=(width, 40)) as pilot:
        await until(pilot, lambda: any("mine.json.gz" in line for line in options(app)))
        await pilot.pause()
        lines = [strip.text for strip in app.screen._compositor.render_strips()]
        assert re.search(r"mine.json.gz .* kB +[0-9]+ months ago +runs/", "\n".join(lines))


@pytest.mark.long
async def test_an_unreachable_file_is_no_reason_to_explain_the_export(alone: Path) -> None:
    (alone / "prose.json").write_text("hello, world")
    for spec, has_advice in (("http://127.0.0.1:9/a.json", False), ("prose.json", True)):
        opening = SingleTraceOpener(spec)
        opening.start()
        app = TorchprofApp(opening)
        async with app.run_test() as pilot:
            await until(pilot, lambda: app.failure is not None)  # noqa: B023
            await pilot.pause()
            assert ("export_chrome_trace" in shown(app, "#loading-numbers")) is has_advice


async def test_a_run_has_the_same_name_in_both_lists_and_its_command(alone: Path) -> None:
    for number, command in enumerate((("python", "train.py", "--lr", "1"), ("python", "train.py", "--lr", "2"))):
        folder = alone / "torchprof_runs" / f"train-20260101-12000{number}"
        folder.mkdir(parents=True)
        shutil.copy(SAMPLE, folder / "train.pt.trace.json.gz")
        save_request(str(folder), RecordingRequest(command))
        recent_traces.add_recent_trace(str(folder / "train.pt.trace.json.gz"))
    app = TorchprofApp()
    async with app.run_test(size=(160, 48)) as pilot:
        await until(pilot, lambda: any("In this folder" in line for line in options(app)))
        for number in range(2):
            lines = [line for line in options(app) if f"train-20260101-12000{number} " in line]
            assert len(lines) == 2  # among the recent ones, and in this folder
            assert all(f"python train.py --lr {number + 1}" in line for line in lines)


def test_a_recent_folder_has_the_size_of_its_traces(alone: Path) -> None:
    (alone / "ddp").mkdir()
    for name, size in (("rank0.json", 300), ("rank1.json", 400), ("notes.txt", 5000)):
        (alone / "ddp" / name).write_text("x" * size)
    recent_traces.add_recent_trace("ddp")
    (entry,) = recent_traces.list_recent_traces()
    assert entry.size == 700
    (alone / "ddp" / "more").mkdir()
    (alone / "ddp" / "more" / "rank2.json").write_text("x" * 50)
    (entry,) = recent_traces.list_recent_traces()
    assert entry.size == 750


def test_the_size_of_a_large_folder_is_limited_work(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        (alone / f"{number}.json").write_text("x")
    monkeypatch.setattr(recent_traces, "MAX_SCANNED", 5)
    assert recent_traces.sum_trace_sizes(alone) == 5


@pytest.mark.long
async def test_a_path_is_typed_and_completed(alone: Path) -> None:
    (alone / "runs").mkdir()
    shutil.copy(SAMPLE, alone / "runs" / "trace_a.json.gz")
    app = TorchprofApp()
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("o", "r", "u")
        field = app.screen.query_one(Input)
        assert field.has_focus
        await pilot.press("tab")
        await until(pilot, lambda: field.value == "runs/")
        await pilot.press("tab")
        await until(pilot, lambda: field.value == "runs/trace_a.json.gz")
        await pilot.press("enter")
        await until(pilot, lambda: explored(app))


async def test_a_path_begins_by_typing_it_and_esc_gives_it_up() -> None:
    app = TorchprofApp()
    async with app.run_test() as pilot:
        await pilot.press("slash", "x")
        assert app.screen.query_one(Input).value == "/x"
        await pilot.press("escape")
        assert app.screen.query_one(OptionList).has_focus
        await pilot.press("q")
    assert app.return_code == 0


@pytest.mark.parametrize(
    ("start", "typed", "name"),
    [
        ("o", "gener", "generate_eager"),  # the first that begins so, before article_… that contain it
        ("slash", "STARVED", "train_gpt_starved"),
        pytest.param("slash", "article_4096_c", "article_4096_cold", marks=pytest.mark.long),
    ],
)
async def test_typing_moves_to_the_row_that_begins_with_or_contains_it(
    alone: Path, start: str, typed: str, name: str
) -> None:
    app = TorchprofApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.screen.query_one(OptionList).option_count > 10)
        await pilot.press(start, *("underscore" if letter == "_" else letter for letter in typed))
        await pilot.pause()
        option = app.screen.query_one(OptionList).highlighted_option
        assert option is not None
        assert name in str(option.id)
        await pilot.press("down")  # into the list, at that row
        chosen = app.screen.query_one(OptionList).highlighted_option
        assert chosen is not None
        assert name in str(chosen.id)


@pytest.mark.parametrize("typed", ["host:generate", "/no/generate", "nothing-like-it"])
async def test_a_path_and_what_is_not_listed_move_nowhere(alone: Path, typed: str) -> None:
    (alone / "generate").write_text("{}")
    app = TorchprofApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.screen.query_one(OptionList).option_count > 10)
        screen = app.screen
        assert isinstance(screen, StartScreen)
        before = screen.query_one(OptionList).highlighted
        screen.action_type_path(typed)
        await pilot.pause()
        assert screen.query_one(OptionList).highlighted == before


@pytest.mark.long
async def test_enter_opens_the_row_of_the_name(alone: Path) -> None:
    app = TorchprofApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.screen.query_one(OptionList).option_count > 10)
        screen = app.screen
        assert isinstance(screen, StartScreen)
        screen.action_type_path("linear")
        await pilot.pause()
        await pilot.press("enter")
        await until(pilot, lambda: explored(app))
        assert "linear_eager" in app.screen.trace.label  # type: ignore[attr-defined]


async def test_a_wrong_path_is_reported_and_nothing_else_happens() -> None:
    app = TorchprofApp()
    async with app.run_test(notifications=True) as pilot:
        app.post_message(TraceAsked("missing[b].json"))
        await until(pilot, lambda: len(app._notifications) > 0)
        assert [notice.message for notice in app._notifications] == ["missing[b].json: no such file"]
        assert isinstance(app.screen, StartScreen)


async def test_a_file_that_is_no_trace_says_what_to_do_next(alone: Path) -> None:
    (alone / "prose.json").write_text("hello, world")
    opening = SingleTraceOpener("prose.json")
    opening.start()
    app = TorchprofApp(opening)
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.failure is not None)
        assert "prose.json" in shown(app, "#loading-bar")
        assert "o open another" in shown(app, "#loading-keys")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, StartScreen))
        assert app.failure is None


async def test_loading_can_be_given_up(tmp_path: Path) -> None:
    read_fd, write_fd = os.pipe()
    opening = SingleTraceOpener("-", "a slow pipe", stdin=read_fd)
    opening.start()
    app = TorchprofApp(opening)
    async with app.run_test() as pilot:
        assert isinstance(app.screen, LoadingScreen)
        assert "a slow pipe" in shown(app, "#loading-name")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, StartScreen))
        await until(pilot, lambda: os.listdir(tmp_path / "cache") == [disk_cache.TAG_FILE])
    os.close(read_fd)
    os.close(write_fd)


def test_progress_in_words() -> None:
    half = Progress("reading", 50_000_000, 100_000_000, 1234)
    assert str(format_bar(half)) == "█" * 20 + "░" * 20 + "   50%"
    assert str(format_counters(half, 2.0)) == "50.0 of 100.0 MB · 1,234 events · 2.0 s left"
    assert str(format_counters(half, 0.1)) == "50.0 of 100.0 MB · 1,234 events"
    assert "unknown" in str(format_bar(Progress("reading", 50)))
    assert str(format_bar(Progress("storing", 1, 1, 7))).startswith("█" * 40)
    assert "1,234 events" in str(format_counters(Progress("arranging", 1, 1, 1234), 3.0))


def test_ages_in_words() -> None:
    minute, hour, day = 60, 3600, 86400
    texts = [format_age(age) for age in (0, 80, 3 * minute, 5 * hour, 3 * day, 400 * day)]
    assert texts == ["just now", "just now", "3 minutes ago", "5 hours ago", "3 days ago", "13 months ago"]


def test_completion_offers_folders_and_traces_before_other_files(alone: Path) -> None:
    for name in ("a.txt", "a.json", ".hidden"):
        (alone / name).touch()
    (alone / "a_folder").mkdir()
    assert list_completions("a") == ["a.json", "a_folder/", "a.txt"]
    assert list_completions(f"{alone}/.h") == [f"{alone}/.hidden"]
    assert list_completions("") == ["a.json", "a_folder/", "a.txt"]
    assert list_completions("nowhere/") == []


def test_what_looks_like_a_trace_and_what_does_not(alone: Path) -> None:
    (alone / "bare.json").write_text('[{"name": "a", "ph": "X"}]')
    (alone / "list.json").write_text("[1, 2, 3]")
    (alone / "broken.json.gz").write_bytes(b"\x1f\x8bnot gzip")
    (alone / "notes.txt").write_text('{"traceEvents": []}')
    (alone / "deep" / "er").mkdir(parents=True)
    shutil.copy(SAMPLE, alone / "deep" / "er" / "trace.json.gz")
    (alone / "deep" / "er" / "too").mkdir()
    shutil.copy(SAMPLE, alone / "deep" / "er" / "too" / "far.json.gz")
    (alone / "loop").symlink_to(alone)
    traces = recent_traces.find_traces(alone)
    assert {Path(trace.spec).relative_to(alone).as_posix() for trace in traces} == {
        "bare.json",
        "deep/er/trace.json.gz",
    }
    assert recent_traces.find_traces(alone / "missing") == []


def test_the_search_is_limited_in_entries_and_time(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        (alone / f"{number}.json").write_text('{"traceEvents": []}')
    monkeypatch.setattr(recent_traces, "MAX_SCANNED", 7)
    assert len(recent_traces.find_traces(alone)) == 7
    monkeypatch.setattr(recent_traces, "MAX_SECONDS", -1)
    assert recent_traces.find_traces(alone) == []


def test_recent_traces_are_newest_first_without_duplicates_or_missing_files(alone: Path) -> None:
    for name in ("a.json", "b.json"):
        (alone / name).write_text("[]")
    for spec in ("a.json", "b.json", "-", "host:a.json", str(alone / "a.json")):
        recent_traces.add_recent_trace(spec)
    assert [entry.spec for entry in recent_traces.list_recent_traces()] == [
        str(alone / "a.json"),
        "host:a.json",
        str(alone / "b.json"),
    ]
    (alone / "b.json").unlink()
    newest, remote = recent_traces.list_recent_traces()
    assert (newest.size, remote.size) == (2, None)
    assert time.time() - newest.opened_at < 600


@pytest.mark.parametrize("stored", ["", "null", "[[1]]", '{"a": 1}', '[["x", "y"]]'])
def test_a_damaged_list_is_an_empty_one(stored: str) -> None:
    path = recent_traces.state_file()
    path.parent.mkdir(parents=True)
    path.write_text(stored)
    assert recent_traces.list_recent_traces() == []
    recent_traces.add_recent_trace("host:a.json")
    assert [entry.spec for entry in recent_traces.list_recent_traces()] == ["host:a.json"]


async def test_enter_on_a_row_that_has_just_left_the_list(alone: Path) -> None:
    """The list is built again when the folder has been searched: a choice may arrive after that."""
    app = TorchprofApp()
    async with app.run_test() as pilot:
        await until(pilot, lambda: bool(options(app)))
        option_list = app.screen.query_one(OptionList)
        gone = Option("gone", id="gone.json")
        app.screen.post_message(OptionList.OptionSelected(option_list, gone, 0))
        await pilot.pause()
        assert isinstance(app.screen, StartScreen)


async def test_a_report_of_nsight_systems_says_what_exports_it(alone: Path) -> None:
    (alone / "report.nsys-rep").write_bytes(b"U3w[END]NVIDIA Nsight Systems Report 2025.3.1.0!\n\xb3G\n\x9b7")
    opening = SingleTraceOpener("report.nsys-rep")
    opening.start()
    app = TorchprofApp(opening)
    async with app.run_test(size=(160, 40)) as pilot:
        await until(pilot, lambda: app.failure is not None)
        await pilot.pause()
        assert "nsys export --type sqlite FILE writes one that opens" in shown(app, "#loading-bar")
