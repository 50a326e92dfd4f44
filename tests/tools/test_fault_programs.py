"""The fault programs: the registry, the arguments, and recordings on the CPU."""

from __future__ import annotations

import ast
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.later_imports import skip_without
from tests.helpers.paths import ROOT
from tools.fault_programs.__main__ import parse_arguments
from tools.fault_programs.recording import Result, record_all, record_program
from tools.fault_programs.registry import FAULTS, VARIANTS
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS

PROGRAMS = ROOT / "tools/fault_programs/programs"


def read_events(path: Path) -> list[dict[str, Any]]:
    """Read the events of a recorded trace."""
    events: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return events


def names(path: Path) -> list[str]:
    return [event.get("name", "") for event in read_events(path)]


def test_the_registry_lists_every_program() -> None:
    functions = {
        (path.stem, node.name)
        for path in PROGRAMS.glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }
    assert {(fault.module, name) for name, fault in FAULTS.items()} == functions
    assert len(FAULTS) == 21


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_described(name: str) -> None:
    fault = FAULTS[name]
    assert fault.injected
    assert fault.mended
    assert fault.ranks in (1, 2)
    assert fault.sentence or fault.pattern
    assert not fault.pattern or fault.pattern in PATTERNS
    for pattern in fault.sentence:
        re.compile(pattern)
        assert pattern == pattern.lower()
        assert not re.search(pattern, "compute-bound · gpu busy 98 % · gemms at 71 % of peak: fine")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bert", "faulty", "-o", "x.json.gz"], "no program 'bert'"),
        (["late_rank", "-o", "x.json.gz"], "which variant of late_rank: faulty or mended?"),
        (["late_rank", "broken", "-o", "x.json.gz"], "which variant"),
        (["late_rank", "faulty", "-o", "x.json"], "must end in .json.gz"),
        (["late_rank", "faulty"], "-o/--output"),
        (["all", "faulty", "-o", "x"], "leave out the variant"),
        (["all", "-o", "x", "--jobs", "0"], "--jobs must be at least 1"),
    ],
)
def test_a_wrong_argument_gives_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_arguments(arguments)
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fault_programs: ")
    assert message in line


def test_the_help_lists_every_program(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(["--help"])
    text = capsys.readouterr().out
    assert all(f"{name} " in text for name in FAULTS)


def test_a_failure_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a second GPU, programs of two ranks are skipped; origin.json lists all runs."""

    def fake_record(name: str, variant: str, folder: str, device: str, gpu: int | None = None) -> Result:
        assert (device, gpu) == ("cuda", 0)
        status = "failed" if name == "cold_start" else "recorded"
        return Result(name, variant, status, 1.0, {}, ("a note",))

    monkeypatch.setattr("tools.fault_programs.recording.record_program", fake_record)
    monkeypatch.setattr("tools.fault_programs.recording.query_environment", lambda: {"torch": "2.11", "gpus": ["H200"]})
    record_all(str(tmp_path), "cuda")
    origin = json.loads((tmp_path / "origin.json").read_text())
    assert origin["torch"] == "2.11"
    assert {(entry["program"], entry["variant"]) for entry in origin["programs"]} == {
        (name, variant) for name in FAULTS for variant in VARIANTS
    }
    statuses = {entry["program"]: entry["status"] for entry in origin["programs"]}
    assert {name for name, status in statuses.items() if status == "failed"} == {"cold_start"}
    assert {name for name, status in statuses.items() if status == "skipped"} == {
        name for name, fault in FAULTS.items() if fault.ranks == 2
    }


def test_a_program_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.fault_programs.recording.TIMEOUT_SECONDS", 0.001)
    result = record_program("late_rank", "faulty", str(tmp_path), "cpu")
    assert result.status == "failed"
    assert result.notes[-1].startswith("no end after")


@pytest.mark.long  # each records twice, in processes that import torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mark", "per_step"),
    [("nonzero_routing", "aten::nonzero", 32), ("gc_pauses", "<built-in function collect>", 1)],
)
def test_only_the_faulty_trace_has_the_fault(name: str, mark: str, per_step: int, tmp_path: Path) -> None:
    skip_without("torch")
    for variant, expected in (("faulty", 4 * per_step), ("mended", 0)):
        result = record_program(name, variant, str(tmp_path), "cpu")
        assert result.status == "recorded", result.notes
        recorded = names(tmp_path / f"{name}.{variant}.json.gz")
        assert sum(text.startswith("ProfilerStep#") for text in recorded) == 4
        assert recorded.count(mark) == expected


@pytest.mark.long
def test_two_ranks_write_two_traces(tmp_path: Path) -> None:
    """The slow host of rank 1 doubles the recorded ops there, since each passes through its dispatch mode."""
    skip_without("torch")
    result = record_program("slow_host_rank", "faulty", str(tmp_path), "cpu")
    assert result.status == "recorded", result.notes
    assert set(result.files) == {f"slow_host_rank.faulty.rank{rank}.json.gz" for rank in (0, 1)}
    fast, slow = (names(tmp_path / file).count("aten::mm") for file in sorted(result.files))
    assert slow == 2 * fast > 0


@pytest.mark.long
@pytest.mark.slow
def test_a_program_of_two_ranks_needs_two_gpus() -> None:
    skip_without("torch")
    command = [sys.executable, "-m", "tools.fault_programs", "late_rank", "faulty", "-o", "x.json.gz"]
    process = subprocess.run(
        command, cwd=ROOT, env={"CUDA_VISIBLE_DEVICES": "-1"}, capture_output=True, text=True, check=False
    )
    assert process.returncode == 1
    assert process.stderr.splitlines()[-1] == "fault_programs: late_rank needs 2 GPUs, 0 found"
