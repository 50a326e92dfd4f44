"""A case that is being worked through: which question, how far, and what was answered. No screen."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from torchprof_tui.learn.case_file import Case, Question
from torchprof_tui.learn.evidence import Evidence

MAX_DIGITS = 9  # digits of an answer


class Phase(enum.Enum):
    """How far a question is: what do you expect, look, what it is; at last all is done."""

    ASK = "ask"
    LOOK = "look"
    TELL = "tell"
    DONE = "done"


@dataclass
class Lesson:
    """The state of a case. `typed`: digits of a number; `given`: the answer in words, "" where none was given.

    `right`: for each question that was left, whether the answer was right; None where none was given.
    `remark`: why the last key or the selected event does not count, "" where it does.
    """

    case: Case
    evidence: Evidence
    index: int = 0
    phase: Phase = Phase.ASK
    typed: str = ""
    given: str = ""
    right: list[bool | None] = field(default_factory=list)
    remark: str = ""

    @property
    def question(self) -> Question:
        return self.case.questions[self.index]

    @property
    def correct_count(self) -> int:
        return sum(answer is True for answer in self.right)

    def takes(self, key: str) -> bool:
        """Return whether a key is of use: a digit, a point, "backspace" or "enter"."""
        is_number = self.phase is Phase.ASK and not self.question.choices
        if key == "enter":
            return self.phase is Phase.TELL or (is_number and bool(self.typed))
        return self.phase is Phase.ASK if key.isdigit() else is_number and (key == "." or bool(self.typed))

    def press(self, key: str) -> None:
        """Answer with a choice, type a number and confirm it, or go on behind an explanation."""
        choices = self.question.choices
        if not self.takes(key):
            return
        self.remark = ""
        if key == "enter" and self.phase is Phase.TELL:
            self.go_on()
        elif key == "enter":
            number, expected = float(self.typed), self.evidence.compute_number(self.question)
            tolerance = max(self.question.within * abs(expected), abs(expected) * 1e-9)
            self._answer(self.typed, abs(number - expected) <= tolerance)
        elif key == "backspace":
            self.typed = self.typed[:-1]
        elif choices:
            if 1 <= int(key) <= len(choices):
                self._answer(choices[int(key) - 1], int(key) == self.question.answer)
            else:
                self.remark = f"{key} is none of the answers: 1 to {len(choices)}"
        elif key != "." or "." not in self.typed:
            self.typed = (self.typed + (key if self.typed or key != "." else "0."))[:MAX_DIGITS]

    def _answer(self, given: str, is_right: bool | None) -> None:
        self.given, self.phase = given, Phase.LOOK
        self.right.append(is_right)

    def arrive(self) -> None:
        """Explain: the evidence is on the screen."""
        if self.phase is Phase.LOOK:
            self.phase, self.remark = Phase.TELL, ""

    def go_on(self) -> None:
        """Go to the next part: without an answer, without having looked, or to the next question."""
        self.remark = ""
        if self.phase is Phase.ASK:
            self._answer("", None)
        elif self.phase is Phase.LOOK:
            self.phase = Phase.TELL
        elif self.phase is Phase.TELL and self.index + 1 < len(self.case.questions):
            self.index, self.phase, self.typed, self.given = self.index + 1, Phase.ASK, "", ""
        else:
            self.phase = Phase.DONE

    def describe_answer(self) -> str:
        """Say whether the answer was right, and what is right."""
        question = self.question
        if question.answer is not None:
            expected = question.choices[question.answer - 1]
        else:
            expected = format_number(self.evidence.compute_number(question))
        if self.right[self.index]:
            about = " (near enough)" if not question.choices and self.given != expected else ""
            return f"right{about}: {expected}"
        return f"you expected {self.given}; it is: {expected}" if self.given else f"it is: {expected}"

    def describe_end(self) -> str:
        """Say how many answers were right."""
        return f"{self.correct_count} of {len(self.case.questions)} as expected"


def format_number(number: float) -> str:
    """Format a number that answers a question."""
    return f"{round(number)}" if number == round(number) or number >= 100 else f"{number:.3g}"
