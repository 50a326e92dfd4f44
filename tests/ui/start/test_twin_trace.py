"""Twins of a trace: the same program, eager and compiled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchprof_samples import SAMPLES
from torchprof_tui.runs.history import save_request
from torchprof_tui.runs.recording_request import RecordingRequest
from torchprof_tui.runs.run_result import MANIFEST_VERSION
from torchprof_tui.ui.start import twin_trace
from torchprof_tui.ui.start.twin_trace import find_twins, list_known_traces


@pytest.mark.parametrize(
    ("opened", "twins"),
    [
        ("geglu_mlp_eager", ["geglu_mlp_compile"]),
        ("train_gpt_compile", ["train_gpt_eager"]),
        ("matmul_add_4096_warm_eager", ["matmul_add_4096_warm_compile"]),
        ("article_4096_compile", ["article_4096_cold"]),
        ("article_4096_cold", ["article_4096_compile"]),
        ("matmul_add_64_cold_eager", []),
        ("attention_naive", []),
    ],
)
def test_samples_tell_it_by_their_names(opened: str, twins: list[str]) -> None:
    names = [f"sample:{sample.name}" for sample in SAMPLES]
    assert [name for name, _ in find_twins(f"sample:{opened}", names)] == [f"sample:{name}" for name in twins]


def test_files_of_the_same_folder_with_the_same_warm_up_first(tmp_path: Path) -> None:
    for name in ("mlp_cold_eager", "mlp_eager", "mlp_compiled", "mlp_compiled.key_averages", "gpt_eager"):
        (tmp_path / f"{name}.json").touch()
    assert find_twins(str(tmp_path / "mlp_compiled.json"), ["/elsewhere/mlp_eager.json"]) == [
        (str(tmp_path / "mlp_eager.json"), "the same, eager"),
        (str(tmp_path / "mlp_cold_eager.json"), "the same, eager"),
    ]
    assert find_twins(str(tmp_path / "missing" / "mlp_eager.json"), []) == []


def test_runs_tell_it_by_their_requests(tmp_path: Path) -> None:
    commands = {
        "a": ("mlp", "--width", "512"),
        "b": ("mlp", "--compile", "--width", "512", "--warmup", "9"),
        "c": ("mlp", "--compile", "--width", "64"),
        "d": ("mlp", "--mode=max-autotune", "--width", "512"),
    }
    for name, command in commands.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "0.json").touch()
        save_request(str(folder), RecordingRequest(command))
        manifest = {"schema": MANIFEST_VERSION, "kept": [{"trace": "0.json"}]}
        (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    found = find_twins(str(tmp_path / "a" / "0.json"), [])
    assert {(Path(name).parent.name, note) for name, note in found} == {
        ("b", "the same, compiled"),
        ("d", "the same, compiled"),
    }
    assert {Path(name).parent.name for name, _ in find_twins(str(tmp_path / "d" / "0.json"), [])} == {"a"}


def test_other_traces_of_the_folder_are_offered_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twin_trace, "list_recent_traces", list)  # of tests that ran before
    for name in ("a.pt.trace.json.gz", "b.pt.trace.json.gz", "b.key_averages.json", "notes.txt"):
        (tmp_path / name).touch()
    _, known = list_known_traces(str(tmp_path / "a.pt.trace.json.gz"))
    assert known[0] == (str(tmp_path / "b.pt.trace.json.gz"), "in the same folder")
    assert not any("key_averages" in name or "notes" in name for name, _ in known)
    assert not any(note == "in the same folder" for _, note in list_known_traces("sample:train_gpt_eager")[1])


def test_traces_of_the_same_model_come_before_other_ones(tmp_path: Path) -> None:
    for name in ("a_model_compile", "gpt_large_eager", "gpt_small_compile"):
        (tmp_path / f"{name}.pt.trace.json").write_text("[]")
    samples = [name for name, _ in list_known_traces("sample:train_gpt_stack_memory")[1] if name.startswith("sample:")]
    of_model = [name for name in samples if name.startswith("sample:train_gpt_")]
    assert samples[: len(of_model)] == of_model
    assert next(name for name in samples if "compile" in name) == "sample:train_gpt_compile"
    beside = [name for name, note in list_known_traces(str(tmp_path / "gpt_small_b2.pt.trace.json"))[1] if "/" in name]
    assert [Path(name).name.split(".")[0] for name in beside[:3]] == [
        "gpt_small_compile",
        "gpt_large_eager",
        "a_model_compile",
    ]
