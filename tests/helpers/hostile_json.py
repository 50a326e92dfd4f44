"""Arbitrary JSON documents with the field names of the program's own files, to attack their readers."""

from __future__ import annotations

from hypothesis import strategies as st

from torchprof_tui.runs.run_result import Manifest, RequestFile
from torchprof_tui.runs.status_channel import StatusMessage
from torchprof_tui.trace.core.typed_json import MAX_TEXT

FIELDS = sorted({field for kind in (Manifest, RequestFile, StatusMessage) for field in kind.__struct_fields__})
TEXTS = ["", ".", "a.json", "/", "a\0b", "\udcff", "\ud800", "\x1b[2J", "x" * (MAX_TEXT + 1)]
NUMBERS = [2**31, 2**63, 2**64, 10**400, -1]


def documents() -> st.SearchStrategy[object]:
    """Return a strategy of JSON values, often objects with known field names, also with NaN and lone surrogates."""
    texts = st.text(st.characters()) | st.sampled_from(TEXTS)
    numbers = st.integers() | st.sampled_from(NUMBERS) | st.floats()
    values = st.recursive(
        st.none() | st.booleans() | numbers | texts,
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*FIELDS, "trace", "table"]) | texts, inner)
        ),
        max_leaves=12,
    )
    kept = st.lists(st.fixed_dictionaries({"trace": texts}, optional={"table": texts | st.none()}), max_size=3)
    known = st.fixed_dictionaries(
        {"command": st.lists(texts, max_size=3), "cwd": texts, "kept": kept},
        optional={name: values for name in FIELDS if name not in ("command", "cwd", "kept")},
    )
    fields = st.dictionaries(st.sampled_from(FIELDS), values, max_size=6)
    return known | fields | st.lists(st.tuples(texts, numbers)) | values
