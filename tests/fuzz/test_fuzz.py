"""A short fuzz run with a fixed seed (`python -m tests.fuzz` is the long one), and faults that the oracle must find."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.fuzz.__main__ import CORPUS, find_fault, load_corpus
from tests.fuzz.mutate import mutate
from torchprof_tui.trace.build import build_trace, event_phases
from torchprof_tui.trace.decode.column_builder import ColumnBuilder
from torchprof_tui.trace.json_text import salvage

FILES = 8


@pytest.mark.parametrize("name", sorted(path.name for path in CORPUS.iterdir()))
def test_the_corpus_opens_without_fault(name: str) -> None:
    fault, _ = find_fault((CORPUS / name).read_bytes())
    assert not fault


def test_the_corpus_is_small() -> None:
    assert all(path.stat().st_size < 16_000 for path in CORPUS.iterdir())


def test_damaged_files_open_without_fault() -> None:
    rng, seeds = random.Random(2026), load_corpus()
    reports = set()
    for k in range(FILES):
        data = mutate(rng, seeds)
        fault, report = find_fault(data)
        assert not fault, f"file {k}: {fault}"
        reports.add(report)
    assert len(reports) > FILES // 5  # the files are damaged in different ways


def test_the_same_seed_yields_the_same_mutations() -> None:
    one, other = ([mutate(random.Random(5), load_corpus()) for _ in range(20)] for _ in range(2))
    assert one == other


def fault_of(name: str = "chrome_list.json") -> str:
    return find_fault((CORPUS / name).read_bytes())[0]


def test_the_oracle_finds_an_entry_that_is_not_accounted_for(monkeypatch: pytest.MonkeyPatch) -> None:
    count_not_drawn = event_phases.EntryAccounting.count_not_drawn
    monkeypatch.setattr(
        event_phases.EntryAccounting,
        "count_not_drawn",
        lambda self, reason, count: count_not_drawn(self, reason, max(count - 1, 0)),
    )
    assert "entries are lost" in fault_of()


def test_the_oracle_finds_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise IndexError("somewhere")

    monkeypatch.setattr(build_trace.launch_links, "link_launches", fail)
    assert fault_of().startswith("IndexError at ")


def test_the_oracle_finds_decoders_that_disagree(monkeypatch: pytest.MonkeyPatch) -> None:
    append_columns = ColumnBuilder.append_columns

    def shift_first(self: ColumnBuilder, signature: object, name: object, columns: object, *rest: object) -> None:
        columns.time[:1] += 1  # type: ignore[attr-defined]
        append_columns(self, signature, name, columns, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(ColumnBuilder, "append_columns", shift_first)
    assert "template decoder differs: time" in fault_of("matmul_add_64_cold_eager.json")


def test_the_oracle_finds_text_at_a_wrong_position(monkeypatch: pytest.MonkeyPatch) -> None:
    parse_chunk = salvage.parse_chunk
    monkeypatch.setattr("tests.fuzz.oracle.parse_chunk", lambda text: parse_chunk(text)[::-1])
    assert "its text says" in fault_of("gpt2_train_stack_memory.json")


def test_the_oracle_finds_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.oracle.FULL_CHECK_INTERVAL", 1)
    monkeypatch.setattr("torchprof_tui.commands.info.text.clean", lambda text: text)
    data = (CORPUS / "chrome_list.json").read_bytes().replace(b"Ascend Hardware", b"\\u001b[31mred")
    assert "reached the terminal" in find_fault(data)[0]


def test_the_oracle_finds_a_negative_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_trace.nesting, "compute_self_durations", lambda *_: np.full(100, -1))
    assert fault_of()
