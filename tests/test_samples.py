"""The traces that ship: there, small, described, and found by name."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT
from tests.helpers.paths import SAMPLES as FOLDER
from tools.record_samples import RECORDINGS, remove_machine_names
from torchprof_samples import CPU_ORIGIN, SAMPLES, Sample, find
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.verdict.verdict import Verdict
from torchprof_tui.trace.loading.load_in_process import load_trace


def test_every_sample_is_listed_and_every_listed_one_is_there() -> None:
    there = {path.name for path in FOLDER.iterdir() if path.suffix == ".gz" or next(path.glob("*.gz"), None)}
    assert {sample.path.name for sample in SAMPLES} == there
    assert len(SAMPLES) >= 6


def test_together_they_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*.gz")) < 2_000_000


def test_one_script_records_them_all() -> None:
    assert [recording.name for recording in RECORDINGS] == [sample.name for sample in SAMPLES]


def test_the_folders_readme_says_the_same() -> None:
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    for sample in SAMPLES:
        assert f"| `{sample.name}` | {sample.ran} | {sample.look} |" in readme


def test_a_beginning_is_enough_where_only_one_has_it() -> None:
    assert find("linear").name == "linear_eager"
    assert find("attention_naive").name == "attention_naive"
    for name, said in (("attention", "several"), ("", "no sample"), ("bert", "no sample")):
        with pytest.raises(LookupError, match=said):
            find(name)


CPU_SAMPLES = [sample for sample in SAMPLES if sample.origin == CPU_ORIGIN]


def test_the_cpu_sample_names_its_data_loader() -> None:
    verdict = decide_verdict(CPU_SAMPLES[0].path)
    assert verdict.cause == "input"
    assert "data loader" in verdict.first


def test_in_its_mended_twin_most_of_the_time_is_that_of_ops() -> None:
    starved, mended = CPU_SAMPLES
    assert mended.name.startswith(starved.name)
    assert decide_verdict(mended.path).cause == "ops"
    assert mended.path.stat().st_size < starved.path.stat().st_size < 300_000


def decide_verdict(path: Path) -> Verdict:
    checker = Checker(load_trace(str(path), cache=False))
    return checker.decide_verdict(findings=checker.check())


@pytest.mark.parametrize("sample", CPU_SAMPLES, ids=lambda sample: sample.name)
def test_the_cpu_samples_name_no_machine(sample: Sample) -> None:
    header = json.loads(gzip.decompress(sample.path.read_bytes()))
    assert not header["deviceProperties"]
    assert not header["host_name"]
    assert "/" not in header["traceName"]


def test_machine_names_are_removed_from_a_new_sample(tmp_path: Path) -> None:
    path = tmp_path / "new.json.gz"
    events = [{"name": "host_name", "args": {"path": "/kept"}}, {"name": f"{ROOT}/profiler_runs/x.py(3): f"}]
    with gzip.open(path, "wt") as file:
        json.dump({"host_name": "my-laptop", "traceEvents": events, "traceName": "/home/me/runs/x.json"}, file)
    remove_machine_names(str(path))
    events[1]["name"] = "/repo/profiler_runs/x.py(3): f"
    expected = {"host_name": "", "traceEvents": events, "traceName": "x.json"}
    assert json.loads(gzip.decompress(path.read_bytes())) == expected
