"""Which captures are opened beside a trace, and what is said about the others."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.long_run import keep_some
from tests.helpers.trace_builder import cpu, kernel, runtime, trace
from torchprof_tui.trace.loading import capture_files
from torchprof_tui.trace.loading.capture_files import CaptureFiles, find_step_batches
from torchprof_tui.trace.model.trace import Trace

REPLAYED = trace(runtime("cudaGraphLaunch", 0, 5, 1), kernel("k", 10, 5, 1))


def write_captures(folder: Path, *names: str) -> str:
    """Write a trace and captures of these names beside it; return the path of the trace."""
    captures = folder / "capture_traces"
    captures.mkdir()
    for name in names:
        (captures / name).write_text(json.dumps({"traceEvents": [cpu(name, 0, 10)]}))
    return str(folder / "trace.json")


def opened(files: CaptureFiles, replayed: Trace = REPLAYED) -> list[str]:
    return [os.path.basename(each.label) for each in files.open_traces(replayed)]


def test_traces_in_the_folder_are_opened_by_name(tmp_path: Path) -> None:
    spec = write_captures(tmp_path, "bs_8.json", "bs_32.json", "notes.txt", "execution_details.json")
    assert opened(CaptureFiles(spec, cache=False)) == ["bs_32.json", "bs_8.json"]


@pytest.mark.parametrize("spec", ["-", "host:runs/trace.json", "https://example.com/trace.json", "/missing/trace.json"])
def test_nothing_is_looked_for_elsewhere(spec: str) -> None:
    files = CaptureFiles(spec)
    assert opened(files) == []
    assert files.problems == ()


def test_captures_of_another_rank_are_left_out(tmp_path: Path) -> None:
    spec = write_captures(tmp_path, "bs_8_rank0.json", "bs_8_rank1.json")
    rank1 = trace(kernel("k", 10, 5), header={"distributedInfo": {"rank": 1, "world_size": 2}})
    assert opened(CaptureFiles(spec, cache=False)) == ["bs_8_rank0.json", "bs_8_rank1.json"]
    assert opened(CaptureFiles(spec, cache=False), rank1) == ["bs_8_rank1.json"]


@pytest.mark.parametrize("with_details", [False, True])
def test_of_many_those_of_the_next_batch_sizes_are_opened(
    tmp_path: Path, with_details: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_files, "MAX_SMALL_BYTES", 0)
    sizes = [1, 2, 4, 8, 16, 24, 32, 40, 48, 56]
    name = "graph_{}.json" if with_details else "bs_{}.json"
    spec = write_captures(tmp_path, *(name.format(size) for size in sizes))
    if with_details:
        details = [{"file": name.format(size), "batch_size": size, "mode": "FULL"} for size in sizes]
        (tmp_path / "capture_traces" / "execution_details.json").write_text(json.dumps(details))
    replayed = trace(kernel("execute_20_context_0(sq0)_generation_20(sq20)", 0, 5))
    files = CaptureFiles(spec, cache=False)
    assert opened(files, replayed)[:5] == [name.format(size) for size in (24, 32, 40, 48, 56)]
    assert len(opened(files, replayed)) == capture_files.MAX_OPENED
    assert files.problems == ("2 of 10 captures in capture_traces/ were not opened; name one with --capture",)


def test_small_captures_are_all_opened(tmp_path: Path) -> None:
    files = CaptureFiles(write_captures(tmp_path, *(f"graph{number:03}.json" for number in range(20))), cache=False)
    assert len(opened(files)) == 20
    assert files.problems == ()


@pytest.mark.parametrize(
    "details", keep_some(["no json", [], {"a": 1}, [{"file": 3, "batch_size": "x"}], "[" * 100_000], 2)
)
def test_a_damaged_list_of_captures_is_reported(tmp_path: Path, details: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_files, "MAX_SMALL_BYTES", 0)
    spec = write_captures(tmp_path, *(f"bs_{size}.json" for size in range(10, 20)))
    text = details if isinstance(details, str) else json.dumps(details)
    (tmp_path / "capture_traces" / "execution_details.json").write_text(text)
    files = CaptureFiles(spec, cache=False)
    assert len(opened(files)) == capture_files.MAX_OPENED
    assert all("\n" not in problem for problem in files.problems)


def test_what_is_no_trace_is_reported_and_the_rest_is_opened(tmp_path: Path) -> None:
    spec = write_captures(tmp_path, "good.json")
    captures = tmp_path / "capture_traces"
    (captures / "bad.json").write_text("\x1b[31mno trace")
    (captures / "empty.json").write_text("")
    (captures / "folder.json").mkdir()
    os.mkfifo(captures / "pipe.json")
    files = CaptureFiles(spec, cache=False)
    assert opened(files) == ["good.json"]
    (problem,) = files.problems
    assert problem.startswith("bad.json: ")
    assert "\x1b" not in problem


def test_large_captures_are_named_but_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = write_captures(tmp_path, "large.json")
    monkeypatch.setattr(capture_files, "MAX_BYTES", 10)
    files = CaptureFiles(spec, cache=False)
    assert opened(files) == []
    assert files.problems[0].startswith("large.json: larger than")


def test_captures_are_opened_once(tmp_path: Path) -> None:
    files = CaptureFiles(write_captures(tmp_path, "a.json"), cache=False)
    assert files.open_traces(REPLAYED) is files.open_traces(REPLAYED)


def test_named_files_replace_those_beside_the_trace(tmp_path: Path) -> None:
    spec = write_captures(tmp_path, "a.json", "b.json")
    named = str(tmp_path / "capture_traces" / "b.json")
    assert opened(CaptureFiles(spec, [named], cache=False)) == ["b.json"]


def test_batch_sizes_are_read_from_steps_of_vllm_and_sglang() -> None:
    names = [
        "execute_32_context_0(sq0)_generation_32(sq32)",
        "step[DECODE bs=24]",
        "aten::mm",
        "step[EXTEND bs=8 toks=9]",
    ]
    assert find_step_batches(names) == (8, 24, 32)
