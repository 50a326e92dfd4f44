"""Build the answers of `learn` from the files of the cases and from a trace."""

from __future__ import annotations

from collections.abc import Mapping

from torchprof_tui.answers.learn import CaseListing, CaseQuestion, LearnCase, ListedCase
from torchprof_tui.answers.record import fill
from torchprof_tui.api.trace import Trace
from torchprof_tui.learn.case_file import Case, CaseList, Question
from torchprof_tui.learn.evidence import Evidence
from torchprof_tui.learn.lesson import format_number
from torchprof_tui.learn.own_trace import build_own_case
from torchprof_tui.learn.progress import Result


def build_listing(known: CaseList, results: Mapping[str, Result], problem: str) -> CaseListing:
    """Build the list of the cases with what was done of them; `problem`: of the file of the results, "" for none."""
    cases = []
    for case in known.cases:
        result = results.get(case.id)
        cases.append(
            fill(
                ListedCase,
                case,
                against=case.against or None,
                as_expected=None if result is None else result.right,
                asked=None if result is None else result.of,
            )
        )
    return CaseListing(cases=cases, problems=[*known.problems, *([problem] if problem else [])])


def build_case_answer(case: Case | None, trace: Trace) -> LearnCase:
    """Build a case with its answers; None: of the questions about what is found in a trace. Raises CaseError."""
    case = build_own_case(trace) if case is None else case
    evidence = Evidence(case, trace)
    return fill(
        LearnCase,
        case,
        against=case.against or None,
        questions=[_build_question(evidence, index, question) for index, question in enumerate(case.questions)],
        own=evidence.fill(case.own),
    )


def _build_question(evidence: Evidence, index: int, question: Question) -> CaseQuestion:
    number = None if question.answer is not None else evidence.compute_number(question)
    rows = evidence.rows[index]
    return CaseQuestion(
        ask=evidence.fill(question.ask),
        choices=list(question.choices),
        look=evidence.fill(question.look),
        keys=question.keys,
        choice=question.answer,
        number=number,
        answer=question.choices[(question.answer or 1) - 1] if number is None else format_number(number),
        tell=evidence.fill(question.tell),
        events=None if rows is None else list(rows),
    )
