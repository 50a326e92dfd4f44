"""The kernel panel: without a kernel, and of a collective, whose idle SMs are no fault."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.explorer_app import explorer, settled, text_of
from tests.helpers.golden_files import load_sample
from tests.helpers.long_run import keep_some
from tests.helpers.merged_ranks import load_merged_ranks
from tests.helpers.paths import SAMPLES
from tests.helpers.trace_builder import cpu, kernel, trace
from torchprof_tui.analysis.collectives.communication_waiting import describe_wait
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.ui.explorer.panels.kernel_panel import COLLECTIVE_NOTE


async def test_enter_in_an_empty_kernel_panel_says_why() -> None:
    async with explorer(trace(cpu("a", 0, 50), cpu("b", 60, 20)), (120, 40)) as (screen, pilot):
        await pilot.press("k", "enter")
        await settled(pilot)
        assert "no kernel to go to: no event is selected" in text_of(screen)
        await pilot.press("right")
        await settled(pilot)
        before = screen.view_state.viewport
        await pilot.press("enter")
        await settled(pilot)
        assert "no kernel to go to: the trace has none" in text_of(screen)
        assert screen.view_state.viewport == before


@pytest.mark.long
async def test_a_collective_is_not_blamed_for_idle_sms() -> None:
    path = next((SAMPLES / "train_gpt_2ranks").glob("*rank0*"))
    shown = load_trace(str(path), cache=False)
    async with explorer(shown, (120, 48)) as (screen, pilot):
        await pilot.press("k")
        for kind, is_blamed in ((Kind.COLLECTIVE, False), (Kind.KERNEL, True)):
            screen.view_state.select(int(np.flatnonzero(shown.kind == kind)[0]))
            screen._refresh_widgets()
            await settled(pilot)
            text = screen._panel_controller.active_panel.text().replace("\n", " ")
            assert ("SMs" in text.replace(COLLECTIVE_NOTE, "")) is is_blamed
            assert ("waits for other ranks" in text) is not is_blamed


def test_a_collective_says_how_long_it_waits_for_the_last_rank() -> None:
    both = load_merged_ranks(sorted((SAMPLES / "train_gpt_2ranks").iterdir()))
    waits = [describe_wait(both, int(event)) for event in np.flatnonzero(both.kind == Kind.COLLECTIVE)]
    assert "6.36 ms of it for rank 1, which arrives last" in waits
    assert any(wait.startswith("for nobody: rank 1 arrives last, up to ") for wait in waits)


@pytest.mark.parametrize(
    ("blocks", "limit"), keep_some([(4, "the grid (<0.01 waves), then warps"), (100_000, "warps")], 1)
)
async def test_a_grid_below_one_wave_is_the_first_limit(blocks: int, limit: str) -> None:
    properties = {"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "numSms": 132}
    config = {"grid": [blocks, 1, 1], "block": [128, 1, 1], "registers per thread": 18, "shared memory": 0}
    shown = trace(cpu("a", 0, 50), kernel("k", 10, 5, **config), header={"deviceProperties": [properties]})
    async with explorer(shown, (120, 48)) as (screen, pilot):
        await pilot.press("right", "k")
        await settled(pilot)
        lines = screen._panel_controller.active_panel.text().splitlines()
        assert f"limited by {limit}" in [line.strip() for line in lines]
        assert any("waves" in line for line in lines if line.startswith("grid")) is (blocks > 4)


async def test_the_full_name_stands_once_where_the_details_are_beside() -> None:
    name = "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl<add>>(int, add)"
    async with explorer(trace(cpu("a", 0, 50), kernel(name, 10, 5)), (200, 56)) as (screen, pilot):
        screen.view_state.select(1)
        screen._refresh_widgets()
        for key, count in (("k", 1), ("l", 1), ("k", 1)):  # beside the details, then beside the chain
            await pilot.press(key)
            await settled(pilot)
            assert text_of(screen).count("void at::native::elementwise_kernel<128") == count, key


@pytest.mark.parametrize("key", keep_some(["k", "l"], 1))
async def test_what_bounds_a_kernel_stands_in_its_panel_and_in_the_chain(key: str) -> None:
    shown = load_sample("train_gpt_stack_memory")
    async with explorer(shown, (160, 60)) as (screen, pilot):
        await settled(pilot)
        queries = screen._panel_controller.chain_panel.context.queries
        limits = {event: queries.describe_limit(event) for event in np.flatnonzero(shown.kind == Kind.KERNEL).tolist()}
        event, limit = next(each for each in limits.items() if not each[1].startswith("unknown"))
        assert limit.startswith(("memory, ", "compute, ", "neither: "))
        screen.view_state.select(event)
        await pilot.press(key)
        await settled(pilot)
        assert limit in " ".join(screen._panel_controller.active_panel.text().split())
