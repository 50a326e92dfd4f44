"""Short runs of hostile sessions, the same ones each time; `python -m tests.hostile` is the long run with new ones."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings, target

from tests.helpers.long_run import keep_some
from tests.hostile.cases import CommandCase, Inputs, ScreenCase
from tests.hostile.commands import run_command_case
from tests.hostile.corpus import COMMAND_CASES, SCREEN_CASES, TERMINAL_CASES
from tests.hostile.inputs import command_cases, screen_cases
from tests.hostile.screens import play_screen_case
from tests.hostile.terminals import run_terminal_case
from tests.hostile.walk import Coverage, Walk
from tests.hostile.world import build_world

pytestmark = pytest.mark.painted

SHORT_WALK_EVENTS = 120

SHORT = settings(
    deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck), print_blob=False
)


@pytest.mark.long
@settings(SHORT, max_examples=10)
@given(case=command_cases())
def test_every_command_answers_or_says_why_not(case: CommandCase) -> None:
    printed = run_command_case(case)
    target(float(len(printed.out.splitlines())))  # towards traces of which much can be said


@pytest.mark.long
@settings(SHORT, max_examples=2)
@given(case=screen_cases())
def test_any_keys_on_any_screen(case: ScreenCase) -> None:
    target(float(len(set(play_screen_case(case)))))  # towards sessions that see many screens


@pytest.mark.parametrize("name", keep_some(COMMAND_CASES, 2))
def test_commands_that_failed_before(name: str) -> None:
    run_command_case(COMMAND_CASES[name])


@pytest.mark.parametrize("name", keep_some(SCREEN_CASES, 1))
def test_screens_that_failed_before(name: str) -> None:
    play_screen_case(SCREEN_CASES[name])


@pytest.mark.parametrize("name", keep_some(TERMINAL_CASES, 1))
def test_the_terminal_is_given_back(name: str) -> None:
    status, written = run_terminal_case(TERMINAL_CASES[name])
    assert status == (2 if name == "no trace" else 0)
    assert b"\x1b[?1049h" in written  # the app was on the screen


@pytest.mark.long  # each push: any keys in this process, and the corpus's keys in a terminal
@pytest.mark.parametrize(("words", "seed"), [(("sample:train_gpt_2ranks",), 2), ((), 3)])
def test_a_random_walk_in_a_terminal(words: tuple[str, ...], seed: int) -> None:
    coverage = Coverage()
    with build_world(Inputs(b"{}"), named_outputs=True):
        walk = Walk(words, seed, coverage, patience=20)
        walk.run(SHORT_WALK_EVENTS)
    assert walk.events >= SHORT_WALK_EVENTS
    assert sum(len(keys) for keys in coverage.pressed.values()) >= 10
