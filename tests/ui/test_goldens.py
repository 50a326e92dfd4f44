"""The table, tree and guess screens as text at three sizes, compared with golden files.

`UPDATE_GOLDENS=1` rewrites the files. Read the difference before you commit it.
"""

from __future__ import annotations

import os
import re

import pytest

from tests.helpers.explorer_app import explorer, settled
from tests.helpers.paths import SAMPLES, SNAPSHOTS
from torchprof_tui.trace.loading.load_in_process import load_trace

GOLDENS = SNAPSHOTS

CASES = {
    "table": ("matmul_add_64_cold_eager", ("t", "down")),
    "table-kernels": ("train_gpt_stack_memory", ("t", "tab", "right")),
    "table-annotations": ("matmul_add_64_cold_eager", ("t", "end")),
    "table-empty": ("matmul_add_64_cold_eager", ("t", "shift+tab", "shift+tab")),
    "table-charts": ("train_gpt_starved", ("t", "shift+tab")),
    "tree": ("train_gpt_stack_memory", ("T", "down", "right")),
    "tree-search": ("train_gpt_stack_memory", ("T", "/", *"mul", "enter", "n")),
    "guess": ("matmul_add_64_cold_eager", ("G", *"gemm", "enter")),
}


@pytest.mark.parametrize("size", [(80, 24), (160, 48), (240, 60)], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", list(CASES))
async def test_screen(name: str, size: tuple[int, int]) -> None:
    sample, keys = CASES[name]
    shown = load_trace(str(SAMPLES / f"{sample}.pt.trace.json.gz"), cache=False)
    async with explorer(shown, size) as (screen, pilot):
        await settled(pilot)
        for key in keys:
            await pilot.press(key)
            await settled(pilot)
        strips = screen.app.screen._compositor.render_strips()
        drawn = "".join(f"{strip.text.rstrip()}\n" for strip in strips).replace(str(SAMPLES), "sample_traces")
    drawn = re.sub(r"/\S+/(profiler_runs/)", r"\1", drawn)  # the folder that the sample was recorded in
    golden = GOLDENS / f"{name}-{size[0]}x{size[1]}.txt"
    if os.environ.get("UPDATE_GOLDENS"):
        golden.write_text(drawn, encoding="utf-8")
    assert drawn == golden.read_text(encoding="utf-8")
