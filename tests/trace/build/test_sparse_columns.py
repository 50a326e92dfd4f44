"""Test that sparse args of entries become those of events, in the order of the events."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tests.helpers.threaded_build import divide_among_threads
from torchprof_tui.trace.build.sparse_columns import collect_sparse_columns
from torchprof_tui.trace.core.column_file import allocate_in_memory
from torchprof_tui.trace.model.raw_events import SparseArg

NO_PAIRS: Any = SimpleNamespace(begin=np.zeros(0, np.int64), end=np.zeros(0, np.int64))


def convert(args: dict[str, SparseArg], event_of: np.ndarray, classified: Any = NO_PAIRS) -> dict[str, dict[int, Any]]:
    raw = cast("Any", SimpleNamespace(args=dict(args)))
    columns = collect_sparse_columns(raw, event_of, int((event_of >= 0).sum()), classified, allocate_in_memory)
    assert not raw.args
    for column in columns.values():
        assert column.events.dtype == np.int32
        assert (np.diff(column.events) > 0).all()
    assert list(columns) == [name for name in [*args, "end_ordinal"] if name in columns]
    return {
        name: dict(zip(column.events.tolist(), column.values.tolist(), strict=True)) for name, column in columns.items()
    }


def expect(args: dict[str, SparseArg], event_of: np.ndarray) -> dict[str, dict[int, Any]]:
    """Convert entry by entry; an arg that no event has is left out."""
    found: dict[str, dict[int, Any]] = {}
    for name, arg in args.items():
        for entry, value in zip(arg.entries.tolist(), arg.values.tolist(), strict=True):
            if event_of[entry] >= 0:
                found.setdefault(name, {})[int(event_of[entry])] = value
    return found


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("seed", range(8))
def test_args_against_a_loop(seed: int, threads: int) -> None:
    """Args of few and of most entries, of three values, of the same entries as others, and of none that is drawn."""
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 400))
    drawn = np.sort(random.permutation(count)[: int(random.integers(0, count + 1))])
    event_of = np.full(count, -1, np.int32)
    event_of[drawn] = random.permutation(len(drawn))
    args = {}
    for name, share in (("stream", 0.5), ("bytes", 0.02), ("address", 0.9), ("python_id", 1.0)):
        entries = np.flatnonzero(random.random(count) < share).astype(np.int32)
        args[name] = SparseArg(entries, random.integers(-5, 2**60, len(entries)))
    args["grid"] = SparseArg(args["stream"].entries.copy(), random.integers(0, 99, (len(args["stream"].entries), 3)))
    hidden = np.flatnonzero(event_of < 0).astype(np.int32)
    args["allocated"] = SparseArg(hidden, hidden.astype(np.int64))
    with divide_among_threads(threads):
        assert convert(args, event_of) == expect(args, event_of)


def test_ends_of_pairs_are_in_any_order() -> None:
    event_of = np.array([2, 0, -1, 1, -1, -1], np.int32)
    pairs: Any = SimpleNamespace(begin=np.array([3, 0]), end=np.array([4, 5]))
    assert convert({}, event_of, pairs) == {"end_ordinal": {1: 4, 2: 5}}
