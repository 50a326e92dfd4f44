"""Ways into a comparison: `D` with a trace, a step or a rank, `--screen`, and what is said where it fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from tests.helpers.long_run import keep_some
from torchprof_tui.analysis.compare.comparison import describe_cause
from torchprof_tui.app import TorchprofApp
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.diff import DiffOptions
from torchprof_tui.commands.diff import main as diff_command
from torchprof_tui.commands.open import OpenOptions
from torchprof_tui.commands.open import main as open_command
from torchprof_tui.program.settings import Configuration
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.ui.common.comparison_request import ComparisonRequest, parse_request
from torchprof_tui.ui.diff.diff_panels import describe_main_cause
from torchprof_tui.ui.diff.diff_screen import DiffScreen
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
from torchprof_tui.ui.start.loading_screen import SecondTraceScreen

EAGER, COMPILED, RANKS = "sample:geglu_mlp_eager", "sample:geglu_mlp_compile", "sample:train_gpt_2ranks"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


async def until(pilot: Pilot[None], condition: Callable[[], object]) -> None:
    for _ in range(6_000):
        if condition():
            return
        await pilot.pause(0.01)
    raise AssertionError(f"it never happened: {pilot.app.screen_stack}")


@asynccontextmanager
async def opened(
    spec: str, comparison: ComparisonRequest | None = None
) -> AsyncIterator[tuple[TorchprofApp, Pilot[None]]]:
    opener = resolve_specs([spec]).create_opener(cache=False)
    opener.start()
    app = TorchprofApp(opener, cache=False, comparison=comparison)
    try:
        async with app.run_test(size=(100, 30)) as pilot:
            await app.lanes_ready.wait()
            await until(pilot, lambda: isinstance(app.screen, ExplorerScreen | SecondTraceScreen | DiffScreen))
            yield app, pilot
    finally:
        opener.cancel()


async def ask(pilot: Pilot[None], text: str) -> None:
    """Press D and type a text in place of what is suggested."""
    names = {":": "colon", "_": "underscore", " ": "space", "/": "slash", ".": "full_stop"}
    await pilot.press("D", *(names.get(character, character) for character in text), "enter")


async def compared(app: TorchprofApp, pilot: Pilot[None]) -> DiffScreen:
    await until(pilot, lambda: isinstance(app.screen, DiffScreen))
    screen = app.screen
    assert isinstance(screen, DiffScreen)
    await until(pilot, lambda: screen.differences.matched is not None or screen.has_class("failed"))
    return screen


@pytest.mark.long
async def test_another_trace_and_back() -> None:
    async with opened(EAGER) as (app, pilot):
        await ask(pilot, COMPILED)
        screen = await compared(app, pilot)
        assert [side.label for side in screen.sides] == ["geglu_mlp_eager", "geglu_mlp_compile"]
        assert screen.comparison is not None
        assert not screen.comparison.is_same_recording
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, ExplorerScreen))
        assert app.last_compared == COMPILED
        await pilot.press("D", "enter")  # the last one is suggested
        assert (await compared(app, pilot)) is not screen


async def test_enter_alone_compares_an_eager_program_with_the_compiled_one() -> None:
    async with opened(EAGER) as (app, pilot):
        await pilot.press("D", "enter")
        assert (await compared(app, pilot)).sides[1].label == "geglu_mlp_compile"


@pytest.mark.long
async def test_the_cause_that_is_named_changed_as_the_step_did() -> None:
    async with opened(COMPILED) as (app, pilot):
        await pilot.press("D", "enter")
        screen = await compared(app, pilot)
        assert screen.sides[1].label == "geglu_mlp_eager"  # enter alone compares a compiled program with the eager one
        assert screen.comparison is not None
        account, causes = screen.comparison.account, screen.comparison.verdict.causes
        assert account.delta < 0 < causes[0].part.delta  # the largest of all undoes a part
        said = describe_main_cause(causes, account)
        assert said.startswith(
            "largest cause: " if any(each.part.delta < 0 for each in causes) else "partly undone by: "
        )
        assert describe_cause(causes[0]) not in said or said.startswith("partly undone by: ")
        assert describe_main_cause(causes[:1], account) == f"partly undone by: {describe_cause(causes[0])}"


@pytest.mark.long
async def test_enter_takes_the_first_choice_that_is_shown() -> None:
    async with opened("sample:linear_eager") as (app, pilot):
        await ask(pilot, "mlp_c")
        assert (await compared(app, pilot)).sides[1].label == "geglu_mlp_compile"
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, ExplorerScreen))
        await ask(pilot, "step")
        screen = await compared(app, pilot)
        assert screen.sides[0].trace is screen.sides[1].trace


@pytest.mark.long
async def test_another_trace_forgets_what_the_last_one_was_compared_with() -> None:
    async with opened(EAGER) as (app, pilot):
        await ask(pilot, "attention_n")
        await compared(app, pilot)
        app._open(COMPILED)
        await until(pilot, lambda: app.screen.TITLE == "explorer")
        await pilot.press("D", "enter")
        assert (await compared(app, pilot)).sides[1].label == "geglu_mlp_eager"


@pytest.mark.long
async def test_two_steps_of_the_open_trace() -> None:
    async with opened(EAGER) as (app, pilot):
        await ask(pilot, "step 9")
        assert app.screen.has_class("asking")  # for the second step
        await pilot.press("escape")
        assert not app.screen.has_class("asking")
        await ask(pilot, "step 3/4")
        screen = await compared(app, pilot)
        assert screen.comparison is not None
        sides = screen.comparison.a.side, screen.comparison.b.side
        assert [side.steps[0].number for side in sides] == [3, 4]
        assert screen.sides[0].trace is screen.sides[1].trace
        assert [side.label[-2:] for side in screen.sides] == ["#3", "#4"]


@pytest.mark.long
async def test_two_ranks_of_a_run() -> None:
    async with opened(RANKS) as (app, pilot):
        await ask(pilot, "rank 0/1")
        screen = await compared(app, pilot)
        assert [side.label for side in screen.sides] == ["train_gpt_2ranks rank 0", "train_gpt_2ranks rank 1"]
        assert [side.trace.rank for side in screen.sides] == [0, 1]


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "says"),
    keep_some(
        [
            ("step 3/99", "no step #99: it has steps #2 to #4"),
            ("rank 0/1", "both are single traces; leave it out"),
            (RANKS, "B holds the ranks 0, 1 and A is a single trace: choose one rank with D: NAME rank N"),
        ],
        1,
    ),
)
async def test_what_cannot_be_compared_is_said_on_the_screen(text: str, says: str) -> None:
    async with opened(EAGER) as (app, pilot):
        await ask(pilot, text)
        screen = await compared(app, pilot)
        line = str(screen.query_one("#diff-problem", Static).content)
        assert says in line
        assert "D compares with another trace" in line
        await ask(pilot, "step 3/4")
        await until(pilot, lambda: app.screen is not screen)
        assert not (await compared(app, pilot)).has_class("failed")


@pytest.mark.long
async def test_what_cannot_be_opened_is_said_and_the_trace_stays() -> None:
    Path("text.json").write_text("no trace at all", encoding="utf-8")
    async with opened(EAGER) as (app, pilot):
        await ask(pilot, "nothing.json")
        await until(pilot, lambda: len(app._notifications))
        assert "nothing.json: no such file; D takes a path" in next(iter(app._notifications)).message
        assert isinstance(app.screen, ExplorerScreen)
        await ask(pilot, "text.json")
        await until(pilot, lambda: isinstance(app.screen, SecondTraceScreen) and app.screen.has_class("failed"))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ExplorerScreen))
        assert app.failure is None


@pytest.mark.long
async def test_the_trace_before_a_recording_is_a() -> None:
    async with opened(COMPILED) as (app, pilot):
        app.note_recording(EAGER)
        await pilot.press("D", "enter")
        screen = await compared(app, pilot)
        assert [side.label for side in screen.sides] == ["geglu_mlp_eager", "geglu_mlp_compile"]


@pytest.mark.long
async def test_a_comparison_asked_for_on_the_command_line() -> None:
    async with opened(EAGER, parse_request(f"{COMPILED} step 3/4")) as (app, pilot):
        screen = await compared(app, pilot)
        assert screen.comparison is not None
        assert screen.comparison.b.side.steps[0].number == 4


def test_diff_with_screen_opens_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    has_terminal = True
    calls: list[tuple[OpenOptions, ComparisonRequest]] = []

    def run(options: OpenOptions, request: ComparisonRequest) -> int:
        calls.append((options, request))
        return 0

    monkeypatch.setattr(open_command, "run", run)
    monkeypatch.setattr("os.isatty", lambda descriptor: has_terminal)
    file = Configuration(Path("config.toml"), {"theme": "light", "mouse": False}, {}, ())
    options = DiffOptions(a="a.json", b="b.json", screen=True, rank="0/3", no_cache=True, configuration=file)
    assert diff_command.run(options) == 0
    ((app_options, request),) = calls
    assert (app_options.trace, app_options.no_cache) == (("a.json",), True)
    assert (app_options.theme, app_options.no_mouse, app_options.configuration) == ("light", True, file)
    assert request == ComparisonRequest("b.json", ranks=(0, 3))
    with pytest.raises(UsageError, match="the screen has no exit status"):
        diff_command.run(replace(options, fail_on="+5%"))
    has_terminal = False
    with pytest.raises(UsageError, match="needs a terminal; leave it out"):
        diff_command.run(options)
