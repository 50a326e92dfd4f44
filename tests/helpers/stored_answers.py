"""Compare all that an analysis answers with what is stored, line by line: `tests/snapshots/answers-NAME.txt`.

`UPDATE_GOLDENS=1 pytest -k answers` rewrites the files. Read the difference: each changed line is a changed answer.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import cache
from zlib import crc32

import numpy as np
import numpy.typing as npt

from tests.helpers.dense_traces import draw_entries
from tests.helpers.golden_files import UPDATES_GOLDENS
from tests.helpers.paths import SNAPSHOTS
from tests.helpers.trace_builder import trace
from torchprof_tui.trace.model.trace import Trace

DENSE_SEEDS = range(12)


def compare_answers(name: str, lines: Iterable[str]) -> None:
    """Compare lines with the stored ones, or rewrite those. Raises AssertionError if they differ."""
    stored, found = SNAPSHOTS / f"answers-{name}.txt", list(lines)
    if UPDATES_GOLDENS:
        stored.write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
    expected = stored.read_text(encoding="utf-8").splitlines()
    assert found == expected, "\n".join(difflib.unified_diff(expected, found, stored.name, "found", n=0, lineterm=""))


def join(values: Iterable[object]) -> str:
    """Join values as one field of a line; many are shortened to their number, their beginning and a checksum."""
    text = ",".join(map(str, values))
    return text if len(text) <= 56 else f"{text[:36]}…{crc32(text.encode()):08x}"


def join_array(values: npt.NDArray[np.generic]) -> str:
    return join(np.asarray(values).ravel().tolist())


@cache
def load_dense(seed: int, unit: int = 5) -> Trace:
    """Load a dense trace, once for all tests of a process."""
    return trace(*draw_entries(seed, unit))
