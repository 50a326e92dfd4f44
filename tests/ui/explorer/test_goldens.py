"""The explorer as text at six sizes, on sample traces, compared with golden files."""

from __future__ import annotations

import pytest

from tests.helpers.explorer_app import explorer, settled
from tests.helpers.golden_files import cases_at_every_size, compare_golden, load_sample, text_on_screen

pytestmark = pytest.mark.painted

CASES = {
    "matmul_add_64_cold_eager": ("matmul_add_64_cold_eager", ("down", "down", "down", "down", "down", "]")),
    "cuda_graph_replay": ("cuda_graph_replay", ("}", "f", "f")),
    "train_gpt_stack_memory": ("train_gpt_stack_memory", ("W", "/", "a", "d", "d", "m", "m", "enter", "n")),
    "chain": ("attention_flash", ("down", "down", "down", "down", "f", "l", "down")),
    "cheatsheet": ("train_gpt_starved", ("c", "down", "enter")),
    "kernel": ("matmul_add_4096_warm_eager", ("/", *"nvjet", "enter", "k")),
}


@cases_at_every_size("name", CASES)
async def test_explorer(name: str, size: tuple[int, int]) -> None:
    sample, keys = CASES[name]
    async with explorer(load_sample(sample), size) as (screen, pilot):
        for key in keys:
            await pilot.press(key)
            if key in ("l", "c"):
                await settled(pilot)
        await settled(pilot)
        await pilot.pause()
        drawn = text_on_screen(screen)
    compare_golden(f"explorer-{name}", size, drawn)
