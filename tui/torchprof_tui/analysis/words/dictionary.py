"""Look up words, and the word that explains an event: what it is, why it is there, what it usually costs.

All of it is declared in `words.txt` beside this file, whose first lines describe its form.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib.resources import files
from typing import Literal

from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind

Fact = Literal["is", "why", "costs"]
_FACTS = ("is", "why", "costs", "where", "also", "patterns")
_OTHER = "other "


@record
class Word:
    """A term and what is known of it, a sentence each. `why` and `costs` are "" for words that are no part of a run.

    `where`: what shows it, a panel with its key or a command. `also`: further terms of this entry. `patterns`: ids.
    """

    term: str
    sentence: str
    why: str
    costs: str
    where: str
    also: tuple[str, ...]
    patterns: tuple[str, ...]

    def get_fact(self, fact: Fact) -> str:
        return {"is": self.sentence, "why": self.why, "costs": self.costs}[fact]


@record
class _Matcher:
    """Events of one kind that a word explains; `is_fallback`: only those that no other word explains."""

    kind: Kind
    regex: str
    is_fallback: bool
    word: Word


@cache
def load_words() -> tuple[Word, ...]:
    """List all words by term."""
    return _load()[0]


def find_word(term: str) -> Word:
    """Return the entry of a term. Raises KeyError for a term that is not in the dictionary."""
    return _index_terms()[term]


def find_event_word(kind: Kind, name: str) -> Word:
    """Find the word that explains an event of this name; for a name that nothing is known of, that of its kind."""
    return min(_match(kind, name), key=lambda matcher: matcher.is_fallback).word


def find_named_word(kind: Kind, name: str) -> Word | None:
    """Find the word that explains events of this name; None where nothing but their kind is known."""
    return next((matcher.word for matcher in _match(kind, name) if not matcher.is_fallback), None)


def find_kind_word(kind: Kind) -> Word:
    """Find the word for events of a kind in general."""
    return find_event_word(kind, "aten::" if kind is Kind.OP else "")


@lru_cache(maxsize=1024)  # the panel of a selected event asks at each key
def _match(kind: Kind, name: str) -> tuple[_Matcher, ...]:
    subject = name  # a kernel's class and a copy's direction are what words name of them
    if kind in (Kind.KERNEL, Kind.COPY):
        decoded = decode_kernel_name(name)
        subject = decoded.kernel_class.label if kind is Kind.KERNEL else decoded.direction or name
    matchers = (each for each in _load()[1] if each.kind == kind)
    return tuple(each for each in matchers if re.fullmatch(each.regex, subject, re.S))


def explain(term: str, *facts: Fact) -> str:
    """Return facts of a word as the phrase that a pattern or a panel shows: its sentences without the last period."""
    return to_phrase(" ".join(find_word(term).get_fact(fact) for fact in facts))


def to_phrase(sentence: str) -> str:
    """Write a sentence as a phrase within a line: "A copy, or a cast." becomes "a copy, or a cast"."""
    first, _, _ = sentence.partition(" ")
    is_name = any(character.isupper() for character in first[1:])  # CUDA, PyTorch, nn.Module
    start = sentence if is_name or first in _PROPER_NAMES else sentence[:1].lower() + sentence[1:]
    return start.removesuffix(".")


_PROPER_NAMES = frozenset({"Dynamo", "Inductor", "Kineto", "Python", "Triton"})


@cache
def _index_terms() -> dict[str, Word]:
    words = load_words()
    return {term: word for word in words for term in (word.term, *word.also)}


@cache
def _load() -> tuple[tuple[Word, ...], tuple[_Matcher, ...]]:
    text = files(__package__).joinpath("words.txt").read_text(encoding="utf-8")
    words: list[Word] = []
    matchers: list[_Matcher] = []
    for block in re.split(r"\n\n+", re.sub(r"(?m)^#.*\n", "", text).strip()):
        term, *lines = block.split("\n")
        pairs = [line.strip().partition(": ")[::2] for line in lines]
        facts = {label: value for label, value in pairs if label in _FACTS}
        word = Word(
            term,
            facts["is"],
            facts.get("why", ""),
            facts.get("costs", ""),
            facts.get("where", ""),
            _split_list(facts.get("also", "")),
            _split_list(facts.get("patterns", "")),
        )
        words.append(word)
        matchers += [
            _Matcher(Kind[label.removeprefix(_OTHER).upper()], value, label.startswith(_OTHER), word)
            for label, value in pairs
            if label not in _FACTS
        ]
    return tuple(words), tuple(matchers)


def _split_list(text: str) -> tuple[str, ...]:
    return tuple(text.split(", ")) if text else ()
