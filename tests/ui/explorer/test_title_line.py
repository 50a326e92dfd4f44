"""The name in the title: which file, and on which host."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.helpers.explorer_app import explorer, settled, text_of, two_steps
from tests.helpers.golden_files import load_sample
from torchprof_tui.ui.common.labels import short_label
from torchprof_tui.ui.explorer.title_line import cut_clauses


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("runs/a.pt.trace.json.gz", "a"),
        ("sample:train_gpt_2ranks", "sample:train_gpt_2ranks"),
        ("gpu-box:runs/a.json.gz", "gpu-box:a"),
        ("ssh://me@gpu-box:2222/runs/a.json", "gpu-box:a"),
        ("https://me:secret@files.example.org:8443/runs/a.json", "files.example.org:8443:a"),
        ("s3://bucket/run[0-9]/", "bucket:run[0-9]"),
        ("zip://a.json::https://[::1]:80/runs/all.zip", "[::1]:80:all.zip"),
    ],
)
def test_a_remote_trace_is_named_with_its_host(label: str, shown: str) -> None:
    assert short_label(label) == shown


@pytest.mark.parametrize("label", ["ssh://", "ssh://gpu-", "https://", "host:", ":", ""])
def test_what_several_names_have_in_common_is_shown_without_failing(label: str) -> None:
    assert short_label(label).isprintable()


async def test_the_title_has_the_host() -> None:
    shown = replace(two_steps(), label="gpu-box:runs/train.json.gz")
    async with explorer(shown, (160, 30)) as (screen, _):
        assert text_of(screen).lstrip().startswith("gpu-box:train ")


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (80, "the GPU waits 81 % for the CPU to dispatch and launch 169 kernels: try a batch"),
        (76, "the GPU waits 81 % for the CPU to dispatch and launch 169 kernels …"),
        (50, "the GPU waits 81 % for the CPU to dispatch and …"),
        (52, "the GPU waits 81 % for the CPU to dispatch and …"),
    ],
)
def test_a_verdict_is_cut_behind_a_clause_or_a_word(width: int, shown: str) -> None:
    text = "the GPU waits 81 % for the CPU to dispatch and launch 169 kernels: try a batch"
    assert cut_clauses(text, width) == shown


async def test_the_title_and_the_findings_have_one_base() -> None:
    """2.0 % of the trace and 2.4 % of its steps are the same fact."""
    async with explorer(load_sample("matmul_add_64_cold_eager"), (160, 48)) as (screen, pilot):
        await settled(pilot)
        await pilot.press("c", "1")
        await settled(pilot)
        assert "GPU busy 2.4 % of steps" in text_of(screen).splitlines()[0]
        assert "GPU busy 2.4 % of the steps" in text_of(screen)
