"""The answers of `learn`: the list of cases, and a case with its questions, answers and numbers."""

from __future__ import annotations

from typing import Annotated

from torchprof_tui.answers.record import Answer, Record, about

SCHEMA = "torchprof-tui/learn/1"


class ListedCase(Record, frozen=True, kw_only=True):
    """One case of the list."""

    id: Annotated[str, about("name of the case, as `learn CASE` takes it")]
    title: Annotated[str, about("what it asks, in a few words")]
    minutes: Annotated[int, about("how long it takes about")]
    sample: Annotated[str, about("the trace that it is about")]
    against: Annotated[str | None, about("the trace that this one is compared with; only where one is")] = None
    as_expected: Annotated[int | None, about("answers that were as expected at best; only of a case that was done")] = (
        None
    )
    asked: Annotated[int | None, about("of how many questions; only of a case that was done")] = None


class CaseListing(Answer, frozen=True, kw_only=True, tag=SCHEMA):
    """The cases (`learn --list`)."""

    cases: Annotated[list[ListedCase], about("in the order in which they teach")]
    problems: Annotated[list[str], about("files of cases, or of the progress, that cannot be read; [] for none")]


class CaseQuestion(Record, frozen=True, kw_only=True):
    """One question of a case: what to expect, where to look, what it is."""

    ask: Annotated[str, about("the question, with the numbers of this trace")]
    choices: Annotated[list[str], about("possible answers; [] where a number is asked for")]
    look: Annotated[str, about("what to look at")]
    keys: Annotated[str, about("keys of the screen that lead to it; empty for none")]
    choice: Annotated[int | None, about("number of the right choice, from 1; only with choices")] = None
    number: Annotated[float | None, about("the right number, computed from this trace; only without choices")] = None
    answer: Annotated[str, about("the right answer as text")]
    tell: Annotated[str, about("what it is, with the numbers of this trace")]
    events: Annotated[list[int] | None, about("numbers of the events that show it, from 0; only where they do")] = None


class LearnCase(Answer, frozen=True, kw_only=True, tag=SCHEMA):
    """A case with all of its answers (`learn CASE`), or what is asked about the findings of a trace."""

    id: Annotated[str, about("name of the case; empty for questions about a trace of one's own")]
    title: Annotated[str, about("what it asks, in a few words")]
    sample: Annotated[str, about("the trace that it is about")]
    against: Annotated[str | None, about("the trace that this one is compared with; only where one is")] = None
    questions: Annotated[list[CaseQuestion], about("in the order in which they are asked")]
    own: Annotated[str, about("how to ask the same of a trace of one's own")]
