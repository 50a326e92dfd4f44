"""Convert numpy arrays and texts to Arrow arrays and back, by their buffers.

`pyarrow.array` and `to_numpy` import pandas wherever it is installed, which takes longer than to sketch a trace. All
functions take the module `pyarrow`, which is optional.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64

_MAX_TEXT_BYTES = 2**31 - 1
"""Bytes of text in an array, whose offsets are int32."""


def build_numbers(arrow: Any, values: Any) -> Any:
    """Build an array of int64 from int[k]."""
    data = np.ascontiguousarray(values, np.int64)
    return arrow.Array.from_buffers(arrow.int64(), len(data), [None, arrow.py_buffer(data)])


def build_small_numbers(arrow: Any, values: Any) -> Any:
    """Build an array of int32 from int[k]."""
    data = np.ascontiguousarray(values, np.int32)
    return arrow.Array.from_buffers(arrow.int32(), len(data), [None, arrow.py_buffer(data)])


def build_texts(arrow: Any, texts: Sequence[str], index: Any) -> Any:
    """Build an array of k texts, `texts[index]`, int[k]. Lone surrogates, which a trace may contain, are replaced."""
    encoded = [text.encode(errors="replace") for text in texts]
    size = np.array([len(text) for text in encoded], np.int64)
    offsets = np.concatenate([[0], np.cumsum(size[index])]) if len(index) else np.zeros(1, np.int64)
    if offsets[-1] > _MAX_TEXT_BYTES:
        raise OverflowError("more than 2 GiB of text in one column")
    data = b"".join([encoded[number] for number in np.asarray(index).tolist()])
    buffers = [None, arrow.py_buffer(offsets.astype(np.int32)), arrow.py_buffer(data)]
    return arrow.Array.from_buffers(arrow.string(), len(index), buffers)


def build_lists(arrow: Any, lengths: Any, values: Any) -> Any:
    """Build an array of lists with these lengths, int[k], of an array of all their values."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return arrow.ListArray.from_arrays(build_small_numbers(arrow, offsets), values)


def read_numbers(array: Any) -> I64:
    """Read an array of int64 without nulls. Raises ValueError for another one."""
    return np.array(_view_numbers(array, "int64", np.int64), np.int64)


def read_small_numbers(array: Any) -> I32:
    """Read an array of int32 without nulls. Raises ValueError for another one."""
    return np.array(_view_numbers(array, "int32", np.int32), np.int32)


def _view_numbers(array: Any, name: str, kind: Any) -> Any:
    if str(array.type) != name or array.null_count:
        raise ValueError(f"a column is {array.type}, not {name} without nulls")
    data = array.buffers()[1]
    if data is None:  # of no values
        return np.zeros(0, kind)
    return np.frombuffer(data, kind)[array.offset : array.offset + len(array)]


def read_codes(array: Any) -> tuple[I32, list[str]]:
    """Read an array of texts that is stored as a dictionary: indexes int32[k], and the texts. Raises ValueError."""
    if not str(array.type).startswith("dictionary<values=string") or array.dictionary.null_count:
        raise ValueError(f"a column is {array.type}, not texts without nulls")
    return read_small_numbers(array.indices), array.dictionary.to_pylist()


def read_lists(array: Any) -> tuple[I32, Any]:
    """Read an array of lists without nulls: their offsets int32[k + 1], and the array of all values."""
    if array.null_count:
        raise ValueError("a list is null")
    return read_small_numbers(array.offsets), array.values
