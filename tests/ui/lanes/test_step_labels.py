"""The labels of serving steps on the ruler, at each width, and on a screen."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from tests.helpers.explorer_app import event_of, explorer, settled, text_of
from tests.helpers.serving_traces import serving_trace
from tests.helpers.trace_builder import cpu, step, trace
from torchprof_tui.trace.model.steps import Step
from torchprof_tui.ui.lanes.step_labels import count_kinds, describe_schedule, describe_serving, format_step_label

DECODE = Step("step[DECODE bs=32]", 3, 0, 0, 10_800_000)
MIXED = Step("execute_context_2(6144)_generation_3(3)", 3, 0, 0, 10_800_000)


def number_steps(*numbers: int) -> list[Step]:
    return [Step(f"ProfilerStep#{number}", number, 0, index * 10, 10) for index, number in enumerate(numbers)]


PROFILER = Step("ProfilerStep#3", 3, 0, 0, 10_800_000)


@pytest.mark.parametrize(
    ("step", "width", "label"),
    [
        (DECODE, 40, "#3 decode 32  10.8 ms"),
        (DECODE, 21, "#3 decode 32"),
        (DECODE, 12, "#3 D32"),
        (DECODE, 6, "D32"),
        (DECODE, 2, "D…"),
        (MIXED, 40, "#3 mixed 5, 6147 tokens  10.8 ms"),
        (MIXED, 30, "#3 mixed 5  10.8 ms"),
        (PROFILER, 40, "#3 10.8 ms"),
        (PROFILER, 15, "#3"),
        (PROFILER, 16, "#3 10.8 ms"),
    ],
)
def test_the_fullest_label_that_fits(step: Step, width: int, label: str) -> None:
    assert format_step_label(step, width) == label


@pytest.mark.parametrize("width", range(1, 60))
def test_no_label_is_wider_than_its_room(width: int) -> None:
    assert all(cell_len(format_step_label(step, width)) <= width for step in (DECODE, MIXED, PROFILER))


def test_a_label_says_what_its_duration_is_of_or_has_none() -> None:
    assert [format_step_label(PROFILER, width, " on CPU") for width in (22, 23)] == ["#3", "#3 10.8 ms on CPU"]
    assert format_step_label(DECODE, 40, " on CPU") == "#3 decode 32  10.8 ms on CPU"


def test_steps_are_described_and_counted() -> None:
    said = MIXED.serving
    assert said is not None
    assert describe_serving(said) == "mixed 5, 6147 tokens"
    assert count_kinds([MIXED, DECODE, DECODE]) == "2 decode, 1 mixed"
    assert count_kinds([PROFILER]) == ""


@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
async def test_the_screen_says_kinds_and_the_keys_go_from_step_to_step(size: tuple[int, int]) -> None:
    async with explorer(serving_trace(1), size) as (screen, pilot):
        await settled(pilot)
        shown = text_of(screen)
        assert "#0 P2" in shown or "#0 prefill 2" in shown
        if size[0] > 100:
            assert "5 steps (3 decode, 1 prefill, 1 mixed)" in shown
        names = []
        screen.view_state.select(int(screen.view_state.trace.steps[0].event))
        for _ in range(2):
            await pilot.press("}")
            await settled(pilot)
            names.append(screen.view_state.selected)
        assert names == [step.event for step in screen.view_state.trace.steps[1:3]]


@pytest.mark.long
async def test_the_table_is_grouped_by_kind_where_there_are_kinds() -> None:
    async with explorer(serving_trace(1)) as (_, pilot):
        await pilot.press("t")
        await settled(pilot)
        for _ in range(6):
            await pilot.press("b")
            await settled(pilot)
        shown = "\n".join(strip.text.rstrip() for strip in pilot.app.screen._compositor.render_strips())
        assert "by step-kind" in shown
        assert "tokens/s" in shown


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (number_steps(2, 3, 4), "#0–#1 wait, warmup: not kept · #2–#4 active"),
        (number_steps(0, 1, 2), "#0–#2 active"),
        (number_steps(1, 2), "#0 wait or warmup: not kept · #1–#2 active"),
        (number_steps(7, 8, 9), "#0–#6 wait, warmup or earlier cycles: not kept · #7–#9 active"),
        (number_steps(2, 3, 7), "#0–#1 wait, warmup: not kept · #2–#3 active · #4–#6 not recorded · #7 active"),
        (number_steps(3, 3), ""),
        ([], ""),
        ([DECODE], ""),
    ],
)
def test_the_schedule_is_told_by_the_numbers_of_the_steps(steps: list[Step], text: str) -> None:
    assert describe_schedule(steps) == text


async def test_the_schedule_stands_before_the_first_step_and_at_a_selected_one() -> None:
    shown = trace(
        cpu("aten::mm", 0, 50), step(2, 100, 50), cpu("aten::mm", 110, 20), step(3, 160, 50), step(4, 220, 50)
    )
    async with explorer(shown, (140, 40)) as (screen, pilot):
        await settled(pilot)
        assert "‹#0–#1 wait, warmup: not kept›" in text_of(screen)
        screen.view_state.select(event_of(shown, "ProfilerStep#3"))
        await pilot.press("left", "right")
        await settled(pilot)
        text = text_of(screen)
        assert "#0–#1 wait, warmup: not kept · #2–#4 active" in text
        assert "wait and warmup steps count too" in text
