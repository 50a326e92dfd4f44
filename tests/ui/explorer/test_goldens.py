"""The explorer as text at three sizes, on sample traces, compared with golden files.

`UPDATE_GOLDENS=1 pytest tests/ui/explorer/test_goldens.py` rewrites the files. Read the difference before you commit
it.
"""

from __future__ import annotations

import os

import pytest

from tests.helpers.explorer_app import explorer, settled, text_of
from tests.helpers.paths import SAMPLES, SNAPSHOTS
from torchprof_tui.trace.loading.load_in_process import load_trace

GOLDENS = SNAPSHOTS

CASES = {
    "matmul_add_64_cold_eager": ("matmul_add_64_cold_eager", ("right", "down", "down", "down", "down", "]")),
    "cuda_graph_replay": ("cuda_graph_replay", ("}", "f", "f")),
    "train_gpt_stack_memory": ("train_gpt_stack_memory", ("W", "/", "a", "d", "d", "m", "m", "enter", "n")),
    "chain": ("attention_flash", ("right", "down", "down", "down", "f", "l", "down")),
    "cheatsheet": ("train_gpt_starved", ("c", "down", "enter")),
    "kernel": ("matmul_add_4096_warm_eager", ("/", *"nvjet", "enter", "k")),
}


@pytest.mark.parametrize("size", [(80, 24), (160, 48), (240, 60)], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", list(CASES))
async def test_explorer(name: str, size: tuple[int, int]) -> None:
    sample, keys = CASES[name]
    path = SAMPLES / f"{sample}.pt.trace.json.gz"
    if not path.exists():
        pytest.skip("this sample is not here")
    shown = load_trace(str(path), cache=False)
    async with explorer(shown, size) as (screen, pilot):
        for key in keys:
            await pilot.press(key)
            if key in ("l", "c"):
                await settled(pilot)
        await settled(pilot)
        await pilot.pause()
        drawn = text_of(screen) + "\n"
    golden = GOLDENS / f"explorer-{name}-{size[0]}x{size[1]}.txt"
    if os.environ.get("UPDATE_GOLDENS"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(drawn, encoding="utf-8")
    assert drawn == golden.read_text(encoding="utf-8")
