"""The table, tree, flame graph, memory, learn and help screens as text at six sizes, compared with golden files."""

from __future__ import annotations

import re

import pytest

from tests.helpers.explorer_app import explorer, settled
from tests.helpers.golden_files import cases_at_every_size, compare_golden, load_sample, text_on_screen
from tests.helpers.paths import SAMPLES

pytestmark = pytest.mark.painted

CASES = {
    "table": ("matmul_add_64_cold_eager", ("t", "down")),
    "table-kernels": ("train_gpt_stack_memory", ("t", "tab", "right")),
    "table-annotations": ("matmul_add_64_cold_eager", ("t", "end")),
    "table-empty": ("matmul_add_64_cold_eager", ("t", "shift+tab", "shift+tab", "shift+tab")),
    "table-charts": ("train_gpt_starved", ("t", "shift+tab")),
    "tree": ("train_gpt_stack_memory", ("T", "down", "right")),
    "tree-search": ("train_gpt_stack_memory", ("T", "/", *"mul", "enter", "n")),
    "flame": ("train_gpt_stack_memory", ("F", "down", "down")),
    "flame-zoomed": ("train_gpt_stack_memory", ("F", "tab", "down", "down", "enter", "/", *"linear", "enter")),
    "flame-ops-cpu": ("matmul_add_64_cold_eager", ("F", "g", "down", "right")),
    "flame-empty": ("matmul_add_64_cold_eager", ("F", "tab")),
    "help-flame": ("matmul_add_64_cold_eager", ("F", "question_mark")),
    "memory": ("train_gpt_stack_memory", ("M", "v", "down")),
    "memory-alive": ("train_gpt_stack_memory", ("M", "tab", "right", "right", "down")),
    "memory-filter": ("train_gpt_stack_memory", ("M", "v", "/", *"gelu", "enter", "w", "w", "tab", "tab", "n")),
    "memory-empty": ("matmul_add_64_cold_eager", ("M",)),
    "help-memory": ("matmul_add_64_cold_eager", ("M", "question_mark")),
    "help": ("matmul_add_64_cold_eager", ("question_mark",)),
    "help-lanes": ("matmul_add_64_cold_eager", ("question_mark", "tab")),
    "help-words": ("matmul_add_64_cold_eager", ("question_mark", "tab", "tab")),
    "help-table": ("matmul_add_64_cold_eager", ("t", "question_mark")),
    "learn": ("matmul_add_64_cold_eager", ("G", *"gemm", "enter")),
}


@cases_at_every_size("name", CASES)
async def test_screen(name: str, size: tuple[int, int]) -> None:
    sample, keys = CASES[name]
    async with explorer(load_sample(sample), size) as (screen, pilot):
        await settled(pilot)
        for key in keys:
            await pilot.press(key)
            await settled(pilot)
        drawn = text_on_screen(screen.app.screen).replace(str(SAMPLES), "sample_traces")
    compare_golden(name, size, re.sub(r"/\S+/(profiler_runs/)", r"\1", drawn))  # without the recording's own folder
