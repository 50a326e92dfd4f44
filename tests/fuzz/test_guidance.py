"""What guides the long run: the lines that a file makes run, and that findings are made small."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.fuzz import __main__ as fuzz
from tests.fuzz.coverage import WATCHED, arcs, described
from tests.fuzz.minimise import minimised
from torchprof_tui.trace.build import event_phases
from torchprof_tui.trace.decode.timestamps import parse_times

CHROME = (fuzz.CORPUS / "chrome_list.json").read_bytes()


def taken(data: bytes) -> set[int]:
    with arcs() as found:
        wrong, _ = fuzz.fault(data)
    assert not wrong
    return found


def test_the_same_file_takes_the_same_arcs() -> None:
    taken(CHROME)  # what is imported and cached once
    assert taken(CHROME) == taken(CHROME)


def test_damage_takes_arcs_that_nothing_else_does() -> None:
    taken(CHROME)
    fresh = taken(CHROME.replace(b'"name"', b'"na\\me"', 1)) - taken(CHROME)
    assert any(described(arc).startswith("salvage.py") for arc in fresh)
    assert any("repair.py" in described(arc) for arc in fresh)


def test_only_the_readers_files_are_watched() -> None:
    assert all("/torchprof_tui/trace/" in path for path in WATCHED)
    with arcs() as found:
        sorted(Path(path).name for path in WATCHED)
    assert not found
    with arcs() as found:
        parse_times([1.5], b'{"ts": 1.5}', None)  # type: ignore[arg-type]
    assert {described(arc).split(" -> ")[1].split(":")[0] for arc in found} == {"timestamps.py"}


def test_arcs_are_of_one_line_after_the_other() -> None:
    with arcs() as found:
        event_phases._concatenate([])
    lines = event_phases._concatenate.__code__.co_firstlineno + 1
    assert [described(arc) for arc in found] == [f"start:0 -> event_phases.py:{lines}"]


def test_what_does_not_show_it_is_left_out() -> None:
    data = bytes(range(256)) * 4
    data = data[:500] + b"<" + data[500:700] + b">" + data[700:]
    asked = 0

    def shows(less: bytes) -> bool:
        nonlocal asked
        asked += 1
        return b"<" in less and b">" in less[less.index(b"<") :]

    assert minimised(data, shows) == b"<>"
    assert asked < 200
    assert minimised(b"abc", lambda less: len(less) == 3) == b"abc"
    assert minimised(b"abc", lambda less: True) == b""


def test_a_run_keeps_what_reached_something_new_and_makes_its_findings_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check = fuzz.check

    def faulty(data: bytes) -> tuple[str, ...]:
        if b"Infinity" in data:
            raise IndexError("infinite")
        return check(data)

    monkeypatch.setattr(fuzz, "check", faulty)  # the worker is forked, and has it
    monkeypatch.setattr(fuzz, "corpus", lambda: [CHROME[:3000]])
    monkeypatch.setattr(fuzz, "mutated", lambda rng, files: rng.choice(files)[rng.randrange(40) :] + rng.choice(INSIDE))
    findings, kept = tmp_path / "findings", tmp_path / "kept"
    assert fuzz.run(random.Random(4), time.monotonic() + 1.5, findings, kept) == 1
    (finding,) = (path for path in findings.iterdir() if not path.suffix)
    assert finding.read_bytes() == b"Infinity"
    assert finding.with_suffix(".txt").read_text().startswith("IndexError at ")
    assert len(list(kept.iterdir())) >= 1
    assert "files that reached something new" in capsys.readouterr().out


INSIDE = [b"", b"-Infinity}]", b"\xff", b"]]]", b'{"a": [']
