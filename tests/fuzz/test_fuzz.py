"""A short fuzz run, always the same; `python -m tests.fuzz` is the long one. And that its oracle notices faults."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.fuzz.__main__ import CORPUS, corpus, fault
from tests.fuzz.mutate import mutated
from torchprof_tui.trace.build import build_trace as assembling
from torchprof_tui.trace.build import event_phases
from torchprof_tui.trace.decode.column_builder import ColumnBuilder
from torchprof_tui.trace.json_text import salvage

FILES = 240


@pytest.mark.parametrize("name", sorted(path.name for path in CORPUS.iterdir()))
def test_the_corpus_opens_without_fault(name: str) -> None:
    wrong, _ = fault((CORPUS / name).read_bytes())
    assert not wrong


def test_the_corpus_is_small() -> None:
    assert all(path.stat().st_size < 16_000 for path in CORPUS.iterdir())


def test_damaged_files_open_without_fault() -> None:
    rng, seeds = random.Random(2026), corpus()
    said = set()
    for k in range(FILES):
        data = mutated(rng, seeds)
        wrong, words = fault(data)
        assert not wrong, f"file {k}: {wrong}"
        said.add(words)
    assert len(said) > FILES // 5  # the files differ in what is wrong with them


def test_the_same_seed_damages_in_the_same_way() -> None:
    one, other = ([mutated(random.Random(5), corpus()) for _ in range(20)] for _ in range(2))
    assert one == other


def seen(name: str = "chrome_list.json") -> str:
    return fault((CORPUS / name).read_bytes())[0]


def test_it_notices_an_entry_that_is_not_accounted_for(monkeypatch: pytest.MonkeyPatch) -> None:
    skip = event_phases.EntryAccounting.count_not_drawn
    monkeypatch.setattr(
        event_phases.EntryAccounting,
        "count_not_drawn",
        lambda self, reason, count: skip(self, reason, max(count - 1, 0)),
    )
    assert "entries are lost" in seen()


def test_it_notices_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise IndexError("somewhere")

    monkeypatch.setattr(assembling.launch_links, "link_launches", fail)
    assert seen().startswith("IndexError at ")


def test_it_notices_readers_that_disagree(monkeypatch: pytest.MonkeyPatch) -> None:
    put = ColumnBuilder.append_columns

    def one_later(self: ColumnBuilder, shape: object, name: object, found: object) -> None:
        found.time[:1] += 1  # type: ignore[attr-defined]
        put(self, shape, name, found)  # type: ignore[arg-type]

    monkeypatch.setattr(ColumnBuilder, "append_columns", one_later)
    assert "reads it differently: time" in seen("matmul_add_64_cold_eager.json")


def test_it_notices_text_that_is_stored_at_the_wrong_place(monkeypatch: pytest.MonkeyPatch) -> None:
    parse = salvage.parse_chunk
    monkeypatch.setattr("tests.fuzz.oracle.parse_chunk", lambda text: parse(text)[::-1])
    assert "its text says" in seen("gpt2_train_stack_memory.json")


def test_it_notices_raw_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.oracle.ALL_THE_WAY", 1)
    monkeypatch.setattr("torchprof_tui.commands.info.text.clean", lambda text: text)
    data = (CORPUS / "chrome_list.json").read_bytes().replace(b"Ascend Hardware", b"\\u001b[31mred")
    assert "reached the terminal" in fault(data)[0]


def test_it_notices_a_duration_below_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembling.nesting, "compute_self_durations", lambda *_: np.full(100, -1))
    assert seen()
