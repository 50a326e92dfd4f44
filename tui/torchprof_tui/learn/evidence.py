"""The answers that the values of a case are computed from, asked of its traces when an expression names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from torchprof_tui.answers.check import Check
from torchprof_tui.api.trace import Trace
from torchprof_tui.api.trace import open as open_trace
from torchprof_tui.learn.case_file import Case, Question, Target
from torchprof_tui.learn.expression import OTHER, ExpressionError, evaluate_expression, fill_template
from torchprof_tui.trace.core.errors import TraceError


class CaseError(Exception):
    """A case whose values cannot be computed on its sample, in one line."""


class Evidence:
    """The values of a case on its trace, and for each question the events of its evidence, or None.

    Raises CaseError where one cannot be computed or is not there.

    Computing them takes up to seconds (a check, a comparison): do it on a thread.
    """

    def __init__(self, case: Case, trace: Trace) -> None:
        self._case, self._name = case, case.id or case.title
        self._check: Check | None = None
        self._environment = build_environment(trace, case.against)
        self.values: dict[str, Any] = {}
        self.rows: list[Sequence[int] | None] = []
        for name, expression in case.values.items():
            self.values[name] = self._evaluate(f"values.{name}", expression)
        for number, question in enumerate(case.questions, 1):
            if question.proof and self._evaluate(f"question {number}: proof", question.proof) is not True:
                raise CaseError(
                    f"{self._name}: question {number}: proof: {question.proof}: is not true of {case.sample}"
                )
            self.rows.append(self._find_rows(f"question {number}: at", trace, question.at))

    def _find_rows(self, place: str, trace: Trace, target: Target) -> Sequence[int] | None:
        """Find the events that are the evidence of a question, by time; None where a panel or a screen is."""
        try:
            if target.finding:
                if self._check is None:
                    self._check = trace.check()
                rows: list[int] = self._check.finding(target.finding).events.tolist()
            elif target.event:
                places = slice(None) if target.nth is None else slice(target.nth, target.nth + 1)
                names = [target.event, *([target.also] if target.also else [])]
                rows = [row for name in names for row in trace.events.find(name).tolist()[places]]
            else:
                return None
        except TraceError as error:
            raise CaseError(f"{self._name}: {place}: {error}") from error
        if not rows:
            raise CaseError(f"{self._name}: {place}: {target.finding or target.event} is not in {self._case.sample}")
        return rows

    def _evaluate(self, place: str, expression: str) -> Any:
        try:
            return evaluate_expression(expression, self.values, self._environment)
        except (ExpressionError, TraceError) as error:
            raise CaseError(f"{self._name}: {place}: {error}") from error

    def fill(self, template: str) -> str:
        """Write the values into a text."""
        try:
            return fill_template(template, self.values)
        except ExpressionError as error:
            raise CaseError(f"{self._name}: {error}") from error

    def compute_number(self, question: Question) -> float:
        number = self._evaluate("number", question.number)
        if not isinstance(number, int | float):
            raise CaseError(f"{self._name}: number: {question.number}: is not a number")
        return float(number)


def build_environment(trace: Trace, against: str = "") -> Mapping[str, Any]:
    """Return the answers and questions that expressions name; each is asked once, when it is first needed.

    `against`: the trace to compare with, opened then.
    """

    @cache
    def open_other() -> Trace:
        return open_trace(against)

    @cache
    def build_table(step: int | None) -> list[Any]:
        rows: list[Any] = _to_json(trace.table(step=step))["rows"]
        return rows

    def row(name: str, step: int | None = None) -> Any:
        found = [each for each in build_table(step) if each["name"] == name]
        if not found:
            raise LookupError(f"row({name!r}): the table has no such row")
        return found[0]

    def rows(device: str, step: int | None = None) -> Any:
        return [each for each in build_table(step) if each["device"] == device and not each["annotation"]]

    def kernels(text: str, step: int | None = None) -> Any:
        return [each for each in rows("GPU", step) if text in each["name"]]

    def list_events(name: str) -> Any:
        found = (trace.events[index] for index in trace.events.find(name).tolist())
        fields = ("name", "start_ns", "duration_ns", "self_ns")
        # without the spans that the profiler draws on the GPU for annotations
        kept = [event for event in found if event.category != "gpu_user_annotation"]
        return [{key: getattr(event, key) for key in fields} for event in kept]

    environment: dict[str, Callable[..., Any]] = {
        "steps": cache(lambda: [_to_json(step) for step in trace.steps]),
        "check": cache(lambda: _to_json(trace.check())),
        "table": cache(lambda: _to_json(trace.table())),
        "finding": cache(lambda name: _to_json(trace.check().finding(name))),
        "row": row,
        "rows": rows,
        "kernels": kernels,
        "chain": cache(lambda event, nth=0: _to_json(trace.chain(event, nth=nth))),
        "memory": cache(lambda by: _to_json(trace.memory_at(by=by))),
        "events": cache(list_events),
    }
    if against:
        environment["diff"] = cache(lambda: _to_json(trace.diff(open_other())))
        environment[OTHER] = cache(lambda: build_environment(open_other()))
    return environment


def _to_json(answer: Any) -> Any:
    """Return an answer as `--json` writes it."""
    return msgspec.json.decode(msgspec.json.encode(answer))
