"""The glossary: its form, its page in the documentation, and its agreement with the code that it describes."""

from __future__ import annotations

import re

import pytest

from tests.helpers.paths import ROOT
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.verdict.verdict import Regime
from torchprof_tui.ui.common.glossary import GLOSSARY, GUIDES, Word, find_word, format_words_page

MAX_SENTENCE = 160


def test_terms_are_unique_and_sorted() -> None:
    terms = [word.term.casefold() for word in GLOSSARY]
    assert terms == sorted(set(terms))


@pytest.mark.parametrize("word", GLOSSARY, ids=[word.term for word in GLOSSARY])
def test_each_term_has_one_plain_sentence(word: Word) -> None:
    assert word.sentence.endswith(".")
    assert len(word.sentence) <= MAX_SENTENCE
    assert word.sentence[0].isupper() or word.sentence[0].isdigit()
    assert not re.search(rf"\b{re.escape(word.term)}\b", word.sentence, re.IGNORECASE), "defined by itself"
    assert word.where
    assert "|" not in "".join(word)  # a column of the Markdown page


def test_the_page_in_docs_equals_the_data() -> None:
    """Generate it again with `python -m torchprof_tui.ui.common.glossary > docs/words.md`."""
    assert (ROOT / "docs" / "words.md").read_text(encoding="utf-8") == format_words_page()
    assert "docs/words.md" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_guides_name_known_terms() -> None:
    for guide in GUIDES.values():
        assert [find_word(term).term for term in guide.terms] == list(guide.terms)
        assert len(guide.terms) == len(set(guide.terms))
        assert 2 <= len(guide.lines) <= 8


def test_patterns_that_it_refers_to_exist() -> None:
    known = {page.stem for page in (ROOT / "docs" / "patterns").glob("*.md")}
    for word in GLOSSARY:
        for names in re.findall(r"cheatsheet \(c\): ([a-z, -]+)", word.where):
            assert set(names.split(", ")) <= known, word


def test_every_verdict_has_a_word() -> None:
    terms = {word.term.casefold() for word in GLOSSARY}
    for regime in Regime:
        assert ("cpu-only trace" if regime is Regime.CPU_ONLY else regime.value) in terms, regime


@pytest.mark.parametrize(
    ("term", "number"),
    [
        ("overhead-bound", f"{thresholds.GPU_BUSY_LOW.value:.0%}"),
        ("compute-bound", f"{thresholds.GPU_BUSY_HIGH.value:.0%}"),
        ("problem", f"{thresholds.LISTED_SHARE.value:.0%}"),
        ("cold call", f"{thresholds.COLD_CALL_MIN.value / 1e6:.0f} ms"),
    ],
)
def test_numbers_are_those_of_the_thresholds(term: str, number: str) -> None:
    assert number.replace("%", " %") in find_word(term).sentence


def test_a_quarter_is_the_share_that_names_input_and_communication() -> None:
    assert thresholds.BOUND_SHARE.value == 0.25
    assert thresholds.OVERHEAD_SHARE_OF_IDLE.value == 0.5
    for term in ("input-bound", "communication-bound"):
        assert "quarter of the time" in find_word(term).sentence


def test_labels_that_it_refers_to_are_labels_of_idle_gaps() -> None:
    known = {cause.label for cause in IdleCause}
    for word in GLOSSARY:
        for label in re.findall(r"labels \(x\): ([a-z ]+)", word.where):
            assert label in known, word
