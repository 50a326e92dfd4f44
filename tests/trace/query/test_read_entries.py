"""Entries of the file: a few of a chunk are parsed alone, with the same result as the whole chunk."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.paths import SAMPLES
from torchprof_tui.trace.json_text.salvage import parse_chosen_entries, parse_chunk
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.query.read_entries import read_entries

SAMPLE = SAMPLES / "train_gpt_stack_memory.pt.trace.json.gz"


def write_entries(names: list[str], separator: str = ",\n  ") -> bytes:
    """Write entries in Kineto's layout."""
    lines = (f'{{\n    "name": {json.dumps(name)}, "args": {{\n      "External id": 1\n    }}\n  }}' for name in names)
    return separator.join(lines).encode()


def test_a_few_entries_are_those_of_the_whole_chunk() -> None:
    text = write_entries([f"e{number}" for number in range(20)])
    whole = parse_chunk(text)
    for chosen in ([0], [19], [3, 3, 7], [0, 1, 2, 19]):
        assert parse_chosen_entries(text, 20, chosen) == [whole[index] for index in chosen]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (write_entries(["e"] * 20, ", "), 20),  # another layout
        (write_entries(["e"] * 20), 19),  # one entry was no entry for the decoder
        (write_entries(["e"] * 20), 0),  # the count is unknown
        (write_entries(["e"] * 20).replace(b'"External id": 1', b'"External id": 1,,', 1), 20),  # to be repaired
    ],
)
def test_other_chunks_are_parsed_as_a_whole(text: bytes, count: int) -> None:
    assert parse_chosen_entries(text, count, [0, 5]) is None


def test_many_entries_are_parsed_as_a_whole() -> None:
    assert parse_chosen_entries(write_entries(["e"] * 20), 20, list(range(6))) is None


def test_deep_entries_are_cut_in_the_same_way() -> None:
    deep = b'{"name": "deep", "args": ' + b"[" * 300 + b"]" * 300 + b"\n  }"
    text = write_entries(["e"] * 9) + b",\n  " + deep
    assert parse_chosen_entries(text, 10, [2, 9]) == [parse_chunk(text)[index] for index in (2, 9)]


def test_entries_of_a_real_trace(tmp_path: Path) -> None:
    trace = load_trace(str(SAMPLE), cache=False)
    every = dict(read_entries(trace, np.arange(len(trace))))
    few = np.arange(0, len(trace), 997)
    read = dict(read_entries(trace, few))
    assert [read[index] for index in range(len(few))] == [every[event] for event in few.tolist()]
    assert [trace.names[name] for name in trace.name[few].tolist()] == [
        read[index]["name"] for index in range(len(few))
    ]
