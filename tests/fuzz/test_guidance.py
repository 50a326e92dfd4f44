"""Guidance of the long fuzz run: recorded arcs, and minimised findings."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fuzz import __main__ as fuzz
from tests.fuzz.coverage import WATCHED, format_arc, pause_recording, record_arcs
from tests.fuzz.minimise import minimise
from torchprof_tui.trace.core.process_state import JOBS
from torchprof_tui.trace.decode.timestamps import parse_times
from torchprof_tui.trace.ranks import merge

CHROME = (fuzz.CORPUS / "chrome_list.json").read_bytes()


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arcs are those of one thread: which of several takes a task is chance."""
    monkeypatch.setenv(JOBS, "1")


def arcs_of(data: bytes) -> set[int]:
    with record_arcs() as arcs:
        fault, _ = fuzz.find_fault(data)
    assert not fault
    return arcs


@pytest.mark.long
def test_the_same_file_takes_the_same_arcs() -> None:
    arcs_of(CHROME)  # imports and fills caches
    assert arcs_of(CHROME) == arcs_of(CHROME)


@pytest.mark.long
def test_damage_takes_arcs_of_its_own() -> None:
    arcs_of(CHROME)
    new_arcs = arcs_of(CHROME.replace(b'"name"', b'"na\\me"', 1)) - arcs_of(CHROME)
    assert any(format_arc(arc).startswith("salvage.py") for arc in new_arcs)
    assert any("repair.py" in format_arc(arc) for arc in new_arcs)


def test_only_files_of_the_trace_package_are_recorded() -> None:
    assert all("/torchprof_tui/trace/" in path for path in WATCHED)
    with record_arcs() as arcs:
        sorted(Path(path).name for path in WATCHED)
    assert not arcs
    with record_arcs() as arcs:
        parse_times([1.5], b'{"ts": 1.5}', None)  # type: ignore[arg-type]
    assert {format_arc(arc).split(" -> ")[1].split(":")[0] for arc in arcs} == {"timestamps.py"}


def test_a_pause_leaves_arcs_out() -> None:
    with record_arcs() as arcs, pause_recording():
        merge._compute_offsets([])
    assert not arcs


def test_an_arc_joins_consecutive_lines() -> None:
    with record_arcs() as arcs:
        merge._compute_offsets([])
    lines = merge._compute_offsets.__code__.co_firstlineno + 1
    assert [format_arc(arc) for arc in arcs] == [f"start:0 -> merge.py:{lines}"]


def test_bytes_that_are_not_needed_are_removed() -> None:
    data = bytes(range(256)) * 4
    data = data[:500] + b"<" + data[500:700] + b">" + data[700:]
    calls = 0

    def reproduces(smaller: bytes) -> bool:
        nonlocal calls
        calls += 1
        return b"<" in smaller and b">" in smaller[smaller.index(b"<") :]

    assert minimise(data, reproduces) == b"<>"
    assert calls < 200
    assert minimise(b"abc", lambda smaller: len(smaller) == 3) == b"abc"
    assert minimise(b"abc", lambda smaller: True) == b""


@pytest.mark.long
def test_a_run_keeps_files_with_new_arcs_and_minimises_its_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check = fuzz.check

    def faulty(data: bytes) -> tuple[str, ...]:
        if b"Infinity" in data:
            raise IndexError("infinite")
        return check(data)

    monkeypatch.setattr(fuzz, "check", faulty)  # the worker is forked, and inherits it
    monkeypatch.setattr(fuzz, "load_corpus", lambda: [CHROME[:3000]])
    monkeypatch.setattr(
        fuzz, "mutate", lambda rng, files: rng.choice(files)[rng.randrange(40) :] + rng.choice(SUFFIXES)
    )
    clock = itertools.count()  # each look at it takes 0.01 s: as many files on a slow machine
    monkeypatch.setattr(fuzz, "time", SimpleNamespace(monotonic=lambda: next(clock) / 100))
    findings, kept = tmp_path / "findings", tmp_path / "kept"
    assert fuzz.run(random.Random(4), 4.0, findings, kept) == 1
    (finding,) = (path for path in findings.iterdir() if not path.suffix)
    assert finding.read_bytes() == b"Infinity"
    assert finding.with_suffix(".txt").read_text().startswith("IndexError at ")
    assert len(list(kept.iterdir())) >= 1
    assert "files that reached something new" in capsys.readouterr().out


SUFFIXES = [b"", b"-Infinity}]", b"\xff", b"]]]", b'{"a": [']
