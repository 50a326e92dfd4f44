"""Property: whatever a question is given, it is answered or raises TraceError with one line: every public method."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import torchprof_tui as tt
from tests.helpers.long_run import keep_some
from tests.helpers.paths import SAMPLES
from tests.helpers.rank_traces import late_rank

NEVER_RIGHT = [
    object(),
    b"aten::mm",
    float("nan"),
    float("inf"),
    {1: 2},
    3 + 4j,
    np.zeros(3),
    lambda: 0,
    ["\0", 1],
    1e300,
]
"""Values that no argument of any question may have."""

ODD = [*NEVER_RIGHT, None, True, "", "x", "\x1b[31m\n", "sync=0", "\ud800", 5, -1, 1.5, 10**30, -(10**30)]
ODD += [
    [],
    (),
    ("a",),
    (1, 2),
    (2, 1),
    (None, None),
    [None],
    ["sync=0", "\n"],
    np.int64(1),
    np.float64(2.5),
    "9" * 5000,
]

GIVEN = {
    "event": 0,
    "number": 0,
    "scenarios": "cpu=0.5",
    "name": "aten::linear",
    "index": 0,
    "pattern_id": "launch-bound",
}
"""Arguments without a default, where another one is tried."""

CLASSES = (tt.Trace, tt.Events, tt.Table, tt.Check)


def list_questions() -> Iterator[tuple[type, str, str]]:
    """List the parameters of the public methods of the API: class, method, parameter."""
    for kind in CLASSES:
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_") or name == "__getitem__":
                for parameter in [*inspect.signature(method).parameters][1:]:
                    yield kind, name, parameter


@pytest.fixture(scope="module", params=["one", "ranks"])
def objects(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[type, Any]:
    """Return an object of each class, of a trace of one process and of two ranks."""
    folder = tmp_path_factory.mktemp("ranks")
    late_rank(ranks=2).write(folder)
    trace = tt.open("sample:train_gpt_stack_memory" if request.param == "one" else folder, cache=False)
    return {tt.Trace: trace, tt.Events: trace.events, tt.Table: trace.table(), tt.Check: trace.check()}


def ask(question: Callable[..., Any], values: dict[str, Any]) -> bool:
    """Ask, and return whether there was an answer. Any error but TraceError ends the test."""
    line = None
    try:
        question(**values)
    except tt.TraceError as error:
        line = str(error)
    assert line is None or (line and line.isprintable())
    return line is None


@pytest.mark.parametrize(
    ("kind", "method", "parameter"),
    keep_some([pytest.param(*each, id=f"{each[0].__name__}.{each[1]}-{each[2]}") for each in list_questions()], 5),
)
def test_every_method(objects: dict[type, Any], kind: type, method: str, parameter: str) -> None:
    asked, check = getattr(objects[kind], method), objects[tt.Check]
    given = GIVEN | {"other": objects[tt.Trace], "name": objects[tt.Events][0].name, "pattern_id": check.patterns[0].id}
    needed = [each.name for each in inspect.signature(asked).parameters.values() if each.default is each.empty]
    given = {name: given[name] for name in needed}
    assert ask(asked, given) or method in ("memory_at", "memory_curve", "memory", "select_rank")  # not recorded there
    for value in ODD:
        answered = ask(asked, given | {parameter: value})
        assert not (answered and any(value is wrong for wrong in NEVER_RIGHT)), value


@pytest.mark.parametrize("parameter", ["source", "rank", "cache"])
def test_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parameter: str) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"source": SAMPLES / "linear_eager.pt.trace.json.gz", "cache": False}
    for value in ODD:
        answered = ask(tt.open, given | {parameter: value})
        assert not (answered and any(value is wrong for wrong in NEVER_RIGHT)), value


def test_a_closed_trace_answers() -> None:
    with tt.open("sample:linear_eager") as trace:
        expected = trace.chain("aten::linear")
    trace.close()
    assert trace.chain("aten::linear") == expected
    assert trace.check().patterns
    assert trace.args(expected.event, nth=expected.nth)


def test_an_event_by_name() -> None:
    trace = tt.open("sample:train_gpt_stack_memory")
    rows = trace.events.find("aten::mm")
    assert trace.chain("aten::mm") == trace.chain(int(rows[0]))
    assert trace.chain("aten::mm", nth=3) == trace.chain(trace.events[int(rows[3])]) == trace.chain(rows[3])
    assert trace.args("aten::mm", nth=1) == trace.args(int(rows[1]))
    with pytest.raises(tt.TraceError, match=rf"nth={len(rows)}: 'aten::mm' occurs {len(rows)} times"):
        trace.chain("aten::mm", nth=len(rows))
    with pytest.raises(tt.TraceError, match=r"no event has the name 'aten::m'; did you mean 'aten::.*'\?"):
        trace.chain("aten::m")


@pytest.mark.parametrize(
    ("question", "line"),
    [
        (lambda trace: trace.diff("x"), r"other='x': give another trace, as tt\.open\(\) returns it"),
        (lambda trace: trace.diff(trace, steps=(7, 3)), r"steps=\(7, 3\): the last step comes before the first"),
        (lambda trace: trace.what_if(["cpu=0.5", None]), "give one text or several"),
        (lambda trace: trace.table(step="1"), "step='1': give a whole number"),
        (lambda trace: trace.check(float("nan")), "start_ns=nan: give a time in ns"),
        (lambda trace: trace.critical_path(rank=5), "no rank 5; there is one trace"),
        (lambda trace: tt.open(None), "source=None: give a path, a URL"),  # type: ignore[arg-type]
        (lambda trace: trace.check().finding("slow"), "pattern_id='slow': the patterns are "),
    ],
)
def test_the_line_says_what_to_give(question: Callable[[Any], object], line: str) -> None:
    with pytest.raises(tt.TraceError, match=line):
        question(tt.open("sample:train_gpt_stack_memory"))


def test_one_scenario_is_a_text() -> None:
    trace = tt.open("sample:train_gpt_stack_memory")
    assert trace.what_if("cpu=0.5") == trace.what_if(["cpu=0.5"])


def test_rows_outside_are_index_errors() -> None:
    trace = tt.open("sample:linear_eager")
    for rows in (trace.events, trace.table()):
        with pytest.raises(IndexError) as error:
            rows[10**6]
        assert isinstance(error.value, tt.TraceError)
        assert rows[-1] == rows[len(rows) - 1]
