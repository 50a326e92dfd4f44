"""The labels of serving steps on the ruler, at each width, and on a screen."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from tests.helpers.explorer_app import explorer, settled, text_of
from tests.helpers.serving_traces import serving_trace
from torchprof_tui.trace.model.steps import Step
from torchprof_tui.ui.lanes.step_labels import count_kinds, describe_serving, format_step_label

DECODE = Step("step[DECODE bs=32]", 3, 0, 0, 10_800_000)
MIXED = Step("execute_context_2(6144)_generation_3(3)", 3, 0, 0, 10_800_000)
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
