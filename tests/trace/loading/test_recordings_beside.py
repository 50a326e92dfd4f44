"""Other recordings of the same program: by the command that `run` wrote down, else by the names of files."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from torchprof_samples import find
from torchprof_tui.runs.run_result import MANIFEST_FILE as WRITTEN_MANIFEST
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.loading.recordings_beside import (
    MANIFEST_FILE,
    MAX_BYTES,
    MAX_OPENED,
    RecordingsBeside,
    reduce_command,
    reduce_name,
)

EAGER, COMPILED = find("geglu_mlp_eager").path, find("geglu_mlp_compile").path
TRACE = "mlp.pt.trace.json.gz"


def labels(trace: Path) -> list[str]:
    return [os.path.basename(each.label) for each in RecordingsBeside(str(trace), cache=False).open_traces()]


def record(folder: Path, *command: str, source: Path = EAGER, trace: str = TRACE) -> Path:
    """Lay out a folder as `run` does; returns the trace in it."""
    folder.mkdir(parents=True)
    shutil.copy(source, folder / TRACE)
    manifest = {"schema": 1, "command": command, "cwd": "/home/me", "rank": None, "kept": [{"trace": trace}]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder / TRACE


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("matmul_add --size 4096 --warmup 10 --compile", "matmul_add --size 4096"),
        ("matmul_add --size 4096 --mode reduce-overhead --active 20", "matmul_add --size 4096"),
        ("generate --mode compile", "generate --mode eager"),
        ("train.py --compile-mode=max-autotune --lr 0.1", "train.py --no-compile --lr 0.1"),
    ],
)
def test_one_program_in_several_modes(a: str, b: str) -> None:
    assert reduce_command(a.split()) == reduce_command(b.split())


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("matmul_add --size 4096", "matmul_add --size 64"),
        ("main.py --mode train", "main.py --mode eval"),
        ("main.py --mode=train", "main.py"),
        ("attention --backend naive", "attention --backend flash"),
    ],
)
def test_other_programs(a: str, b: str) -> None:
    assert reduce_command(a.split()) != reduce_command(b.split())


def test_names_of_files() -> None:
    assert reduce_name("/a/article_4096_compile.pt.trace.json.gz") == reduce_name("b/article_4096_cold.pt.trace.json")
    assert reduce_name("article_4096_compile.json") != reduce_name("article_64_cold.json")
    assert reduce_name("article_4096_compile.json") != reduce_name("article_4096_addmm.json")
    assert reduce_name("compile.json") == ()


def test_runs_of_the_same_command_newest_first(tmp_path: Path) -> None:
    trace = record(tmp_path / "mlp-3", "mlp", "--compile", source=COMPILED)
    for number, command in enumerate([("mlp",), ("mlp", "--size", "8"), ("mlp", "--warmup", "10")]):
        record(tmp_path / f"mlp-{number}", *command)
        os.utime(tmp_path / f"mlp-{number}", (1000 + number, 1000 + number))
    other = RecordingsBeside(str(trace), cache=False)
    found = [Path(each.label).parent.name for each in other.open_traces()]
    assert found == ["mlp-2", "mlp-0"]
    assert other.open_traces() is other.open_traces()  # opened once
    assert other.spec == str(trace)


def test_a_foreign_manifest_names_no_file_outside_of_its_folder(tmp_path: Path) -> None:
    trace = record(tmp_path / "here", "mlp", "--compile")
    shutil.copy(EAGER, tmp_path / "outside.json.gz")
    record(tmp_path / "there", "mlp", trace="../outside.json.gz")
    assert labels(trace) == []


def test_files_with_a_name_that_says_the_same(tmp_path: Path) -> None:
    for name in ("a_compile.json.gz", "a_eager.json.gz", "b_eager.json.gz"):
        shutil.copy(EAGER, tmp_path / name)
    assert labels(tmp_path / "a_compile.json.gz") == ["a_eager.json.gz"]
    assert labels(tmp_path / "b_eager.json.gz") == []


def test_what_cannot_be_opened_is_passed_over(tmp_path: Path) -> None:
    shutil.copy(EAGER, tmp_path / "a_compile.json.gz")
    shutil.copy(EAGER, tmp_path / "a_eager.json.gz")
    (tmp_path / "a_warm.json").write_text("{")
    (tmp_path / "a_cold.json").write_text("")
    (tmp_path / "a_max.json").mkdir()
    with (tmp_path / "a_autotune.json").open("wb") as large:
        large.truncate(MAX_BYTES + 1)
    (tmp_path / "manifest.json").write_text('{"command": 3}')
    assert labels(tmp_path / "a_compile.json.gz") == ["a_eager.json.gz"]
    for name in ("a_default", "a_reduce", "a_inductor", "a_compiled"):
        shutil.copy(EAGER, tmp_path / f"{name}.json.gz")
    assert len(labels(tmp_path / "a_compile.json.gz")) == MAX_OPENED


@pytest.mark.parametrize("spec", ["-", "host:/a/a_compile.json", "https://host/a_max.json", "/missing/a_max.json"])
def test_nothing_lies_beside_these(spec: str) -> None:
    assert RecordingsBeside(spec).open_traces() == ()


def test_a_sample_is_named_as_such() -> None:
    trace = load_trace(str(COMPILED), cache=False)
    assert trace.same_program is not None
    assert trace.same_program.spec == "sample:geglu_mlp_compile"
    assert [each.label for each in trace.same_program.open_traces()] == ["sample:geglu_mlp_eager"]


def test_the_manifest_is_the_one_that_runs_write() -> None:
    assert MANIFEST_FILE == WRITTEN_MANIFEST
