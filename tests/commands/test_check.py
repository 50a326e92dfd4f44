"""`check`: what scripts and CI get, and what a person reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.pattern_traces import healthy, waiting
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS
from torchprof_tui.cli import main

SLOW = "sample:matmul_add_64_cold_eager"
CONTRACT = {
    "id", "section", "state", "title", "meaning", "action", "reason", "at_stake_us", "share", "evidence",
}  # fmt: skip


@pytest.fixture
def written(tmp_path: Path) -> Any:
    def write(entries: list[dict[str, Any]]) -> str:
        path = tmp_path / "made.json"
        path.write_text(json.dumps({"traceEvents": entries}))
        return str(path)

    return write


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["check", *words, "--json", "--no-cache"]) == 0
    out = capsys.readouterr().out
    answer: dict[str, Any] = json.loads(out)
    return answer


def test_json_as_the_contract_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    answer = asked(capsys, SLOW)
    patterns = answer["patterns"]
    assert sorted(one["id"] for one in patterns) == sorted(PATTERNS)
    assert all(CONTRACT.issubset(one) for one in patterns)
    assert {one["state"] for one in patterns} == {"fired", "absent", "cannot_tell"}
    first = patterns[0]
    assert first["id"] == "overhead-bound"
    assert 0 < first["share"] <= 1
    cold = next(one for one in patterns if one["id"] == "first-step-wide")
    (event,) = cold["evidence"]
    assert {key: event[key] for key in ("name", "start_ns", "duration_ns")} == {
        "name": "ProfilerStep#2",
        "start_ns": 0,
        "duration_ns": 216_855,
    }
    assert event["lane"].startswith("CPU 564")
    assert cold["at_stake_us"] == pytest.approx(216.855 - (88.224 + 76.818) / 2, abs=0.001)
    assert answer["verdict"]["regime"] == "overhead-bound"
    worst = [one["at_stake_us"] for one in patterns if one["state"] == "fired" and one["weight"] == "problem"]
    assert worst == sorted(worst, reverse=True)


def test_a_range(capsys: pytest.CaptureFixture[str]) -> None:
    answer = asked(capsys, SLOW, "--range", "170us:0.26ms")
    assert answer["scope"] == {"label": "range", "start_ns": 170_000, "duration_ns": 90_000}
    for one in answer["patterns"]:
        for event in one["evidence"]:
            assert event["start_ns"] < 260_000
            assert event["start_ns"] + event["duration_ns"] > 170_000


@pytest.mark.parametrize(
    ("entries", "fail_on", "status"),
    [
        (waiting(), "overhead-bound", 1),
        (waiting(), "compute-bound,overhead-bound", 1),
        (waiting(), "compute-bound", 0),
        (waiting(), "fired", 1),
        (healthy(), "fired", 0),  # it computes, and has a chain: worth knowing, nothing to fail on
        (healthy(), "compute-bound", 1),  # who asks for it by name gets it
    ],
)
def test_exit_status_for_ci(written: Any, entries: list[dict[str, Any]], fail_on: str, status: int) -> None:
    assert main(["check", written(entries), "--fail-on", fail_on, "--no-cache"]) == status


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--fail-on", "hiden-copy"], "did you mean hidden-copy?"),
        (["--fail-on", ","], "needs a pattern's name"),
        (["--range", "5"], "expected T0:T1"),
        (["--range", "9:5"], "ends before it begins"),
        (["--range", "a:5"], "--range a:5"),
    ],
)
def test_a_wrong_call_is_one_line(capsys: pytest.CaptureFixture[str], words: list[str], says: str) -> None:
    assert main(["check", SLOW, *words]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("torchprof-tui: ")
    assert says in err
    assert err.count("\n") == 1


def test_text_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", SLOW, "--no-cache"]) == 0
    out = capsys.readouterr().out
    assert "overhead-bound · GPU busy 2.4 %" in out
    assert "step #2 took 216.9 µs, 2.6× as long as the other 2: 88.2 µs and 76.8 µs" in out
    assert "schedule=torch.profiler.schedule(" in out
    assert "one rank only" in out
    assert "\x1b" not in out
    assert not any(line != line.rstrip() for line in out.splitlines())


def test_names_from_a_trace_are_data(capsys: pytest.CaptureFixture[str], written: Any) -> None:
    entries = json.loads(json.dumps(waiting()).replace("aten::add", "aten::[red]\\u001b[31mx"))
    assert main(["check", written(entries), "--no-cache"]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_a_partial_file_is_told_and_never_fine_silently(
    capsys: pytest.CaptureFixture[str], written: Any, tmp_path: Path
) -> None:
    cut = tmp_path / "cut.json"
    cut.write_text(Path(written(healthy())).read_text()[:-150])
    assert main(["check", str(cut), "--json", "--no-cache", "--fail-on", "graph-replay"]) == 0
    out, err = capsys.readouterr()
    assert err.splitlines() == [
        f"torchprof-tui: {cut} is partial: cut short; see `info`",
        "torchprof-tui: --fail-on: cannot be told: graph-replay: the file is partial (cut short)",
    ]
    (lost,) = json.loads(out)["partial"]
    assert (lost["kind"], lost["count"]) == ("cut short", 1)
    assert lost["example"].startswith("the file ends inside the entry")
    assert main(["check", str(cut), "--no-cache", "--fail-on", "compute-bound"]) == 1
    out, err = capsys.readouterr()
    assert "(of what could be read: cut short)" in out.splitlines()[0]
    assert "--fail-on" not in err


def test_a_whole_file_has_nothing_partial(capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(capsys, SLOW)["partial"] == []
    assert main(["check", SLOW, "--fail-on", "graph-replay"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert " of the trace GPU busy " in out


def test_a_slice_is_checked_in_its_range_unless_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    part = tmp_path / "part.json"
    assert main(["slice", SLOW, "--range", "170us:0.26ms", "-o", str(part)]) == 0
    capsys.readouterr()
    answer, whole = asked(capsys, str(part)), asked(capsys, SLOW, "--range", "170us:0.26ms")
    assert answer["scope"]["label"] == "range of the slice"
    assert answer["scope"]["duration_ns"] == 90_000
    assert answer["verdict"]["gpu_busy"] == pytest.approx(whole["verdict"]["gpu_busy"])
    assert asked(capsys, str(part), "--range", "0:20us")["scope"]["duration_ns"] == 20_000
