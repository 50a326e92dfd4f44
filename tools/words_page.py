"""Write docs/words.md, the dictionary as a page: `python -m tools.words_page`."""

from __future__ import annotations

from pathlib import Path

from torchprof_tui.analysis.words.dictionary import Word, load_words

PAGE = Path(__file__).resolve().parent.parent / "docs" / "words.md"

INTRODUCTION = """\
# Words

What the words of the screens, the commands and a trace mean: what it is, why it is there, and what it usually costs.
In the app: `?`, then the page "Words"; type to filter. With an event selected, `?` begins with the word of that event.
Written by `python -m tools.words_page` from `tui/torchprof_tui/analysis/words/words.txt`.

Times are those of the [samples](patterns/README.md), recorded on H100 and H200 GPUs with the profiler on.
"""


def build_page() -> str:
    """Return the page: a section for each word."""
    return "\n".join([INTRODUCTION, *map(_format_word, load_words())])


def _format_word(word: Word) -> str:
    lines = [f"## {word.term}\n", word.sentence]
    if word.why:
        lines += [f"Why: {word.why}", f"Costs: {word.costs}"]
    patterns = ", ".join(f"[{name}](patterns/{name}.md)" for name in word.patterns)
    details = (("Also", ", ".join(word.also)), ("Where", word.where), ("Patterns", patterns))
    lines += [f"{label}: {text}." for label, text in details if text]
    return "<br>\n".join(lines).replace("\n<br>\n", "\n\n") + "\n"


if __name__ == "__main__":
    PAGE.write_text(build_page(), encoding="utf-8")
