"""The record form and the recording screen in the real app: requests, output, phases, and the end of a run."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, OptionList, Static

from tests.helpers.golden_files import SIZES
from tests.helpers.long_run import keep_some
from tests.helpers.paths import ROOT
from torchprof_samples import find
from torchprof_tui.app import TorchprofApp
from torchprof_tui.runs import recording_request
from torchprof_tui.runs.history import save_request
from torchprof_tui.runs.recording_request import (
    WORKLOADS,
    WORKLOADS_FOR_GPUS,
    RecordingRequest,
    recall_interpreter,
    remember_interpreter,
)
from torchprof_tui.trace.loading.opener import SingleTraceOpener
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
from torchprof_tui.ui.record import record_screen
from torchprof_tui.ui.record.console_view import _SLACK_LINES, MAX_LINES, ConsoleView
from torchprof_tui.ui.record.foreign_request import NOTICE
from torchprof_tui.ui.record.record_screen import RecordScreen, RunOptions
from torchprof_tui.ui.record.recording_screen import RecordingScreen, format_elapsed
from torchprof_tui.ui.start.recent_traces import list_recent_traces
from torchprof_tui.ui.start.start_screen import RECORD_SPEC, StartScreen

SIZE = (120, 40)
FAKE = ROOT / "tests/helpers/fake_harness.py"
SAMPLE = find("matmul_add_64_cold_eager").path
STACK_SAMPLE, NO_STACK_SAMPLE = "train_gpt_stack_memory", "matmul_add_64_cold_eager"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder, without recent traces, and use a harness that needs no torch."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(tmp_path / "cache"))
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(recording_request, "HARNESS", FAKE)
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


async def until(pilot: Pilot[None], condition: Callable[[], object]) -> None:
    for _ in range(6_000):
        if condition():
            return
        await pilot.pause(0.01)
    texts = [shown(pilot.app, selector) for selector in ("#running-phase", "#running-end")]
    raise AssertionError(f"the condition was not met in time:\n{texts}")


def shown(app: object, selector: str) -> str:
    return str(app.screen.query_one(selector, Static).content)  # type: ignore[attr-defined]


def output(app: TorchprofApp) -> str:
    return app.screen.query_one(ConsoleView).terminal.text


def options(app: TorchprofApp) -> list[str]:
    return [str(option.prompt) for option in app.screen.query_one("#run-list", OptionList).options]


async def form(pilot: Pilot[None]) -> None:
    """Open the form: `r` repeats the run of a trace that has a request, `:record` asks in any case."""
    has_trace = pilot.app.screen.TITLE == "explorer"
    await pilot.press(*(":record" if has_trace else "r"), *(["enter"] if has_trace else []))
    await until(pilot, lambda: isinstance(pilot.app.screen, RecordScreen))
    await pilot.pause()


async def submit(pilot: Pilot[None], script: str, name: str = "script.py") -> None:
    """Start a run of the script through the form."""
    Path(name).write_text(script)
    await form(pilot)
    pilot.app.screen.query_one(Input).value = name
    await pilot.press("ctrl+r")


async def started(pilot: Pilot[None], script: str, name: str = "script.py") -> RecordingScreen:
    """Start a run and return its screen; for scripts whose trace is not opened at once."""
    await submit(pilot, script, name)
    await until(pilot, lambda: isinstance(pilot.app.screen, RecordingScreen))
    assert isinstance(pilot.app.screen, RecordingScreen)
    return pilot.app.screen


async def test_the_form_opens_from_the_start_screen_and_escape_returns() -> None:
    app = TorchprofApp()
    async with app.run_test(size=SIZE) as pilot:
        assert isinstance(app.screen, StartScreen)
        await until(pilot, lambda: app.screen.query_one(OptionList).highlighted is not None)
        assert app.screen.query_one(OptionList).highlighted_option.id != RECORD_SPEC  # enter opens a trace
        await pilot.press("home", "down", "enter")  # below "Learn"
        await until(pilot, lambda: isinstance(app.screen, RecordScreen))
        await pilot.pause()
        assert [any(name in line for line in options(app)) for name in WORKLOADS] == [True] * len(WORKLOADS)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, StartScreen))
        assert any("Record a run" in command.title for command in app.get_system_commands(app.screen))


@pytest.mark.long
async def test_the_form_is_a_command_line() -> None:
    app = TorchprofApp()
    async with app.run_test(size=SIZE) as pilot:
        await form(pilot)
        await pilot.press("down", "enter", *" --size", "space", "8")
        assert shown(app, "#run-equivalent") == "$ torchprof-tui run linear --size 8"
        await pilot.press("tab", "down", "down", "x", "1", "2", "backspace", "0")  # --active takes no x
        await pilot.press("down", "down", *"a:b")
        assert "MODULE:FUNCTION" in shown(app, "#run-hint")
        await pilot.press("down", *"1.5", "down", "down", "space", "space", "down", "space", "R", "q")
        line = "$ torchprof-tui run --active 10 --step a:b --after 1.5 --then finish --record-shapes linear --size 8"
        assert shown(app, "#run-equivalent") == line
        await pilot.press("up", "space", "up", "up", "delete", "shift+tab", "end", "'")
        assert "cannot be read: no closing quotation" in shown(app, "#run-hint")
        await pilot.press("backspace")
        line = "$ torchprof-tui run --active 10 --step a:b --record-shapes linear --size 8"
        assert shown(app, "#run-equivalent") == line


@pytest.mark.long
async def test_without_a_gpu_workloads_that_need_one_are_grey_and_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    for has_gpu in (False, True):
        monkeypatch.setattr(record_screen, "is_gpu_present", lambda environment: has_gpu)  # noqa: B023
        app = TorchprofApp()
        async with app.run_test(size=(160, 48)) as pilot:
            await form(pilot)
            streams, replay = (
                [line for line in options(app) if line.split()[0] == name] for name in WORKLOADS_FOR_GPUS
            )
            assert ("needs a GPU: none here" in streams[0]) != has_gpu
            assert ("--eager added" in replay[0]) != has_gpu
            rows = app.screen.query_one("#run-list", OptionList)
            rows.highlighted = rows.get_option_index("workload:streams")
            await pilot.press("enter")
            assert app.screen.query_one(Input).value == ("streams" if has_gpu else "")
            assert ("streams needs a GPU" in shown(app, "#run-hint")) != has_gpu
            app.screen.set_focus(rows)
            rows.highlighted = rows.get_option_index("workload:graph_replay")
            await pilot.press("enter")
            assert app.screen.query_one(Input).value == ("graph_replay" if has_gpu else "graph_replay --eager")


@pytest.mark.long
@pytest.mark.parametrize("size", [(80, 24), pytest.param((120, 40), marks=pytest.mark.long)])
async def test_the_help_of_an_option_ends_with_a_whole_clause(size: tuple[int, int]) -> None:
    app = TorchprofApp()
    async with app.run_test(size=size) as pilot:
        await form(pilot)
        await pilot.pause()
        rows = app.screen.query_one(RunOptions)
        texts = [str(rows.get_option_at_index(index).prompt) for index in range(rows.option_count)]
        assert not [text for text in texts if "…" in text]
        assert max(map(len, texts)) <= rows.scrollable_content_region.width
        assert any(text.endswith("steps to skip before the warm-up") for text in texts)  # … (2; workloads 1)
        await pilot.press("tab", "tab")
        assert "steps to skip before the warm-up (2; workloads 1)" in shown(app, "#run-hint")


@pytest.mark.long
@pytest.mark.parametrize("size", keep_some(map(pytest.param, SIZES[:5]), 1))
async def test_no_key_hint_is_cut(size: tuple[int, int]) -> None:
    app = TorchprofApp()
    async with app.run_test(size=size) as pilot:
        await form(pilot)
        for key in ("", "tab", "tab"):
            await pilot.press(*([key] if key else []))
            await pilot.pause()
            line = app.screen._compositor.render_strips()[app.screen.query_one("#run-keys").region.y].text
            assert shown(app, "#run-keys").strip() in line
            assert "esc back" in line


async def test_an_invalid_request_is_reported_before_anything_starts() -> None:
    app = TorchprofApp()
    async with app.run_test(size=SIZE) as pilot:
        await form(pilot)
        await pilot.press("ctrl+r")
        assert "nothing to run" in shown(app, "#run-hint")
        await pilot.press(*"nonesuch", "enter")
        assert "neither a workload" in shown(app, "#run-hint")
        assert isinstance(app.screen, RecordScreen)


async def test_a_run_ends_on_the_lanes_and_r_runs_it_again(alone: Path) -> None:
    app = TorchprofApp()
    async with app.run_test(size=SIZE) as pilot:
        await submit(pilot, "print('hello')")
        await until(pilot, lambda: app.screen.TITLE == "explorer")
        (first,) = (alone / "torchprof_runs").iterdir()
        assert "hello\n" in (first / "output.txt").read_text()
        await pilot.press("r")
        await until(pilot, lambda: app.screen.TITLE == "explorer" and "script-1" in app._current_opener.spec)
        assert len(app.screen_stack) == 2
        assert [note.message for note in app._notifications] == [
            "the previous trace is kept: D compares with it, o lists it"
        ]
        await pilot.press(":", *"record", "enter")
        await until(pilot, lambda: isinstance(app.screen, RecordScreen) and len(app.screen._past_runs) == 2)
        await until(
            pilot, lambda: [Path(trace.spec).parent.name for trace in list_recent_traces()] == ["script-1", "script-0"]
        )
        await pilot.press("escape", "o")
        await until(
            pilot, lambda: isinstance(app.screen, StartScreen) and app.screen.query_one(OptionList).option_count > 3
        )
        rows = [str(option.prompt).split()[0] for option in app.screen.query_one(OptionList).options if option.id]
        assert rows[2:4] == ["script-1", "script-0"]
        await pilot.press("down", "enter")
        await until(pilot, lambda: app.screen.TITLE == "explorer" and "script-0" in app._current_opener.spec)
    words = json.loads((first / "words.json").read_text())
    assert words == ["--output", "torchprof_runs", "script.py"]


@pytest.mark.long
async def test_the_run_gets_the_users_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    app = TorchprofApp()
    async with app.run_test(size=SIZE) as pilot:
        os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as the explorer sets it for the viewer
        await started(pilot, "import os\nprint(os.environ.get('OPENBLAS_NUM_THREADS'))\nTRACES = 0")
        await until(pilot, lambda: not app.screen.busy)
        assert output(app).startswith("None\n")


@pytest.mark.long
async def test_a_past_run_fills_the_form_with_all_its_options(alone: Path) -> None:
    folder = alone / "torchprof_runs" / "train-1"
    folder.mkdir(parents=True)
    save_request(
        str(folder), RecordingRequest(("python", "train.py", "--lr", "1 2"), ("--active", "5", "--with-stack"), "py")
    )
    app = TorchprofApp()
    async with app.run_test(size=SIZE) as pilot:
        await form(pilot)
        await until(pilot, lambda: any("train.py" in line for line in options(app)))
        await pilot.press("home", "enter")
        line = "$ torchprof-tui run --active 5 --with-stack --python py -- python train.py --lr '1 2'"
        assert shown(app, "#run-equivalent") == line


@pytest.mark.long
async def test_a_past_run_keeps_the_options_that_were_switched_by_hand(alone: Path) -> None:
    folder = alone / "torchprof_runs" / "train-1"
    folder.mkdir(parents=True)
    save_request(str(folder), RecordingRequest(("train.py",), ("--active", "5", "--record-shapes")))
    app = TorchprofApp()
    async with app.run_test(size=SIZE) as pilot:
        await form(pilot)
        await until(pilot, lambda: any("train.py" in line for line in options(app)))
        run_options = app.screen.query_one(RunOptions)
        app.screen.set_focus(run_options)
        run_options.highlighted = run_options.get_option_index("--with-stack")
        await pilot.press("space")
        app.screen.set_focus(app.screen.query_one("#run-list"))
        await pilot.press("home", "enter")
        line = "$ torchprof-tui run --active 5 --record-shapes --with-stack -- train.py"
        assert shown(app, "#run-equivalent") == line


@pytest.mark.long
async def test_past_runs_are_on_screen_on_a_small_terminal(alone: Path) -> None:
    for number in range(6):
        folder = alone / "torchprof_runs" / f"train-{number}"
        folder.mkdir(parents=True)
        save_request(str(folder), RecordingRequest((f"train{number}.py",)))
    app = TorchprofApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await form(pilot)
        await until(pilot, lambda: any("train0.py" in line for line in options(app)))
        await pilot.pause()
        lines = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
        assert all(word in lines for word in ("Past runs", "Workloads", "matmul_add"))
        assert sum(f"train{number}.py" in lines for number in range(6)) == 3


def own_trace(alone: Path, sample: str = "matmul_add_64_cold_eager") -> Path:
    """Copy a sample into a run's folder, with a request that was made here in another folder."""
    folder = alone / "torchprof_runs" / "train-1"
    folder.mkdir(parents=True)
    shutil.copy(find(sample).path, folder / "train.pt.trace.json.gz")
    (alone / "project").mkdir()
    request = RecordingRequest(("train.py", "--lr", "1"), ("--active", "5"), sys.executable)
    save_request(str(folder), request, str(alone / "project"))
    return folder / "train.pt.trace.json.gz"


def opened(path: Path) -> TorchprofApp:
    opening = SingleTraceOpener(str(path))
    opening.start()
    return TorchprofApp(opening)


@pytest.mark.parametrize("has_stacks", keep_some([False, True], 1))
async def test_the_form_from_a_trace_has_its_request_and_stacks(alone: Path, has_stacks: bool) -> None:
    app = opened(own_trace(alone, STACK_SAMPLE if has_stacks else NO_STACK_SAMPLE))
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.screen.TITLE == "explorer")
        await form(pilot)
        stack = "" if has_stacks else " --with-stack"
        line = f"torchprof-tui run --active 5{stack} --python {sys.executable} -- train.py --lr 1"
        assert shown(app, "#run-equivalent").endswith(f"$ cd {alone}/project && {line}")
        assert ("the trace on screen has no Python stacks" in shown(app, "#run-hint")) is not has_stacks
        await pilot.press("tab")
        run_options = app.screen.query_one(RunOptions)
        assert app.screen.focused is run_options
        assert has_stacks or run_options.current_option.flag == "--with-stack"


@pytest.mark.long
async def test_the_form_from_a_foreign_trace_only_shows_its_request(alone: Path) -> None:
    path = own_trace(alone)
    request = path.parent / "request.json"
    request.write_bytes(request.read_bytes().replace(b"train.py", b"theirs.py"))
    app = opened(path)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.screen.TITLE == "explorer")
        await form(pilot)
        notice = shown(app, "#run-foreign")
        assert notice.startswith(NOTICE)
        assert "theirs.py --lr 1" in notice


@pytest.mark.long
async def test_the_form_has_the_interpreter_of_the_last_run_that_worked(alone: Path) -> None:
    bare = alone / "env" / "bin" / "python"
    bare.parent.mkdir(parents=True)
    bare.symlink_to(sys.executable)
    remember_interpreter(str(bare))
    app = TorchprofApp()
    async with app.run_test(size=SIZE) as pilot:
        await form(pilot)
        await pilot.press("enter")
        assert shown(app, "#run-equivalent") == f"$ torchprof-tui run --python {bare} matmul_add"
        app.screen.query_one(Input).value = "/other/python train.py"
        await pilot.pause()
        assert shown(app, "#run-equivalent") == "$ torchprof-tui run -- /other/python train.py"
        app.screen.query_one(Input).value = "script.py"
        Path("script.py").write_text("")
        await pilot.press("ctrl+r")
        await until(pilot, lambda: app.screen.TITLE == "explorer")
        assert recall_interpreter() == str(bare)


async def test_a_failed_run_stays_on_screen_and_its_trace_is_one_key_away() -> None:
    app = TorchprofApp()
    async with app.run_test(size=SIZE) as pilot:
        screen = await started(pilot, "print('\\x1b[31mred\\x1b[0m', flush=True)\nraise ValueError('the reason')")
        await until(pilot, lambda: not screen.busy)
        assert "ValueError: the reason" in output(app)
        assert "failed with exit status 1" in shown(app, "#running-end")
        assert "enter open the trace" in shown(app, "#running-keys")
        (style,) = (style for text, style in screen.query_one(ConsoleView).terminal.lines[0].runs() if text == "red")
        assert style.color is not None
        assert style.color.number == 1
        await pilot.press("backspace")
        await until(pilot, lambda: isinstance(app.screen, RecordScreen))
        assert app.screen.query_one(Input).value == "script.py"
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, RecordingScreen) and not app.screen.busy)
        await pilot.press("enter")
        await until(pilot, lambda: app.screen.TITLE == "explorer")


async def test_a_run_without_a_trace_explains_what_to_do() -> None:
    app = TorchprofApp()
    async with app.run_test(size=SIZE) as pilot:
        screen = await started(pilot, "", "refuse.py")
        await until(pilot, lambda: not screen.busy)
        assert "name another with --python" in output(app)
        assert "before anything could be recorded" in shown(app, "#running-end")
        assert "backspace change it" in shown(app, "#running-keys")
        await pilot.press("enter", "escape")
        await until(pilot, lambda: isinstance(app.screen, StartScreen))


async def test_ctrl_c_keeps_what_was_recorded_and_opens_it() -> None:
    app = TorchprofApp()
    async with app.run_test(size=SIZE) as pilot:
        screen = await started(pilot, "import time\nprint('ready', flush=True)\ntime.sleep(600)")
        await until(pilot, lambda: "ready" in output(app))
        await until(pilot, lambda: "recording, step 2 of 3" in shown(app, "#running-phase"))
        for key in ("o", "R", "r", "escape", "enter"):  # no other key leaves a run
            await pilot.press(key)
        assert app.screen is screen
        await pilot.press("ctrl+c")
        await until(pilot, lambda: app.screen.TITLE == "explorer")
        assert screen.result is not None
        assert screen.result.end_reason == "interrupted"


@pytest.mark.long
async def test_several_ranks_open_as_one(alone: Path) -> None:
    """The first trace of each rank is opened, because these cover the same time."""
    app = TorchprofApp()
    async with app.run_test(size=SIZE) as pilot:
        await submit(pilot, "TRACES, RANKS = 0, 3")
        await until(pilot, lambda: app.screen.TITLE == "explorer")
        (run_folder,) = (alone / "torchprof_runs").iterdir()
        assert len(list(run_folder.glob("*.json.gz"))) == 6
        explorer = app.screen
        assert isinstance(explorer, ExplorerScreen)
        ranks = explorer.trace.merged_ranks
        assert ranks is not None
        assert [(rank.number, Path(rank.file).name) for rank in ranks.all] == [
            (number, f"fake.rank{number}.pt.trace.json.gz") for number in range(3)
        ]
        await pilot.press("r")  # repeats the run
        await until(pilot, lambda: app.screen is not explorer and app.screen.TITLE == "explorer")


@pytest.mark.long
async def test_quitting_ends_the_run_and_it_saves(alone: Path) -> None:
    app = TorchprofApp()
    async with app.run_test(size=SIZE) as pilot:
        await started(pilot, "import time\nprint('ready', flush=True)\ntime.sleep(600)")
        await until(pilot, lambda: "ready" in output(app))
        await pilot.press("q")
    (folder,) = (alone / "torchprof_runs").iterdir()
    assert json.loads((folder / "manifest.json").read_text())["ended"] == "interrupted"
    assert (folder / "request.json").exists()


@pytest.mark.long
async def test_a_large_output_keeps_the_app_responsive_and_small(monkeypatch: pytest.MonkeyPatch) -> None:
    feed_times: list[float] = []
    feed = ConsoleView.feed

    def counting_feed(self: ConsoleView, data: bytes, dropped_lines: int = 0) -> None:
        feed_times.append(time.monotonic())
        assert len(data) <= 200_000
        feed(self, data, dropped_lines)

    monkeypatch.setattr(ConsoleView, "feed", counting_feed)
    app = TorchprofApp()
    async with app.run_test(size=SIZE) as pilot:
        script = "for number in range(10_000):\n    print('line', number, '-' * 60)\nTRACES = 0"
        screen = await started(pilot, script)
        await until(pilot, lambda: not screen.busy)
        console = screen.query_one(ConsoleView)
        assert len(console.terminal.lines) <= MAX_LINES + _SLACK_LINES
        assert console.terminal.discarded_lines + len(console.terminal.lines) == 10_001
        await pilot.pause()
        assert "line 9999 " in console.render_line(console.size.height - 2).text
        assert "10,001 lines" in shown(app, "#running-phase")
        assert len(feed_times) <= screen._recording.seconds * 20 + 3  # however much was printed
        at_end = console.scroll_offset.y
        await pilot.press("pageup")
        await until(pilot, lambda: console.scroll_offset.y == at_end - console.size.height + 1)
        await pilot.press("home")
        await until(pilot, lambda: console.scroll_offset.y == 0)


@pytest.mark.long
async def test_the_terminal_has_the_size_of_the_console_view() -> None:
    app = TorchprofApp()
    async with app.run_test(size=(80, 24)) as pilot:
        script = (
            "import os, signal, time\n"
            "signal.signal(signal.SIGWINCH, lambda *_: print('now', *os.get_terminal_size(), flush=True))\n"
            "print('first', *os.get_terminal_size(), flush=True)\ntime.sleep(600)"
        )
        screen = await started(pilot, script)
        console = screen.query_one(ConsoleView)
        await until(pilot, lambda: f"first {console.columns} {console.size.height}\n" in output(app))
        await pilot.resize_terminal(100, 30)
        await until(pilot, lambda: f"now {console.columns} {console.size.height}\n" in output(app))


@pytest.mark.long
async def test_r_on_a_trace_without_a_request_says_so_and_opens_an_empty_form(alone: Path) -> None:
    shutil.copy(SAMPLE, alone / "mine.json.gz")
    opening = SingleTraceOpener(str(alone / "mine.json.gz"))
    opening.start()
    app = TorchprofApp(opening)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await until(pilot, lambda: app.screen.TITLE == "explorer")
        await pilot.press("r")
        await until(pilot, lambda: isinstance(app.screen, RecordScreen))
        assert "how this trace was recorded" in next(iter(app._notifications)).message
        assert app.screen.query_one(Input).value == ""
        await pilot.press("escape")
        await until(pilot, lambda: app.screen.TITLE == "explorer")
        await pilot.press("T")
        await until(pilot, lambda: type(app.screen).__name__ == "TreeScreen")
        await form(pilot)  # from any screen over the lanes
        assert app.screen.query_one(Input).value == ""


def test_elapsed_in_words() -> None:
    assert [format_elapsed(seconds) for seconds in (0, 59.94, 65, 3665)] == ["0.0 s", "59.9 s", "1:05", "1:01:05"]


@pytest.mark.long
async def test_the_highlighted_row_is_on_screen_below_past_runs() -> None:
    for number in range(4):
        folder = Path("torchprof_runs") / f"script-{number}"
        folder.mkdir(parents=True)
        save_request(str(folder), RecordingRequest(("python", "script.py")))
    app = TorchprofApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await form(pilot)
        await until(pilot, lambda: "Past runs" in options(app)[0])
        await pilot.pause()
        drawn = [strip.text for strip in app.screen._compositor.render_strips()]
        assert any(line.strip().startswith(WORKLOADS[0]) for line in drawn[4:12])


async def test_a_form_that_is_left_before_it_is_shown_does_not_end_the_program() -> None:
    """Its widgets are gone when textual tells it that it was mounted."""
    screen = RecordScreen()
    assert not screen.children
    screen.on_mount()
