"""Hypothesis strategies for the entries of traces: of all types, and in Kineto's own layout."""

from __future__ import annotations

from hypothesis import strategies as st

TRICKY = [
    '}, {"ph"',
    '},\n  {\n    "',
    "\\",
    '"',
    '\\\\"',
    "]}",
    "[[",
    "}",
    "é\u2028",
    "😀",
    "\x00\x1f\n",
    "a,b",
    "stream 7",
]
texts = st.one_of(st.sampled_from(TRICKY), st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
micros = st.builds(lambda whole, part: whole + part / 1000, st.integers(-(2**30), 2**42), st.integers(0, 999))
times = st.one_of(st.integers(-1000, 2**50), micros, micros.map(lambda value: f"{value:.3f}"))
ids = st.one_of(st.integers(-(2**63), 2**64 - 1), texts, st.sampled_from([0, 7, "7", "stream 7", -1, "", 1.0, None]))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
small_integers = st.integers(-(2**40), 2**40)
args = st.fixed_dictionaries(
    {},
    optional={
        "correlation": small_integers,
        "External id": small_integers,
        "stream": small_integers,
        "bytes": st.one_of(small_integers, small_integers.map(str)),
        "grid": st.lists(st.integers(0, 2**31), min_size=3, max_size=3),
        "Sequence number": small_integers,
        "Python parent id": st.one_of(small_integers, st.none()),
        "graph node id": st.one_of(small_integers, st.integers(1 << 32, 1 << 40)),
        "Python id": small_integers,
        "other": values,
        "list": st.lists(st.fixed_dictionaries({"ph": texts, "ts": micros}), max_size=3),
    },
)
categories = st.sampled_from(["cpu_op", "kernel", "python_function", "cuda_runtime", "ac2g", "", "cpu_instant_event"])
entries = st.fixed_dictionaries(
    {},
    optional={
        "ph": st.one_of(st.sampled_from("XXXXBEisfbneCM"), st.just("odd"), st.none()),
        "cat": st.one_of(categories, texts),
        "name": texts,
        "pid": ids,
        "tid": ids,
        "ts": times,
        "dur": times,
        "id": ids,
        "args": args,
        "extra": values,
    },
)
entry_lists = st.lists(
    st.one_of(entries, entries, entries, entries, st.sampled_from([None, 5, "x", [], [{}], {}])), max_size=25
)
"""Lists of entries, some of which are no objects."""

# --- Kineto's own layout: numbers as text, as they may be written ---------------------------------------------------

kineto_times = st.one_of(
    st.integers(-3 * 10**15, 3 * 10**15),
    st.builds("{}.{:03d}".format, st.integers(-3 * 10**15, 3 * 10**15), st.integers(0, 999)),
    st.sampled_from(["0", "-0.5", "0.25", "4399999999999999", "5000000000000000", "12.0005", "1e3", "007", "8.5e0"]),
)
kineto_durations = st.one_of(st.none(), kineto_times)
kineto_numbers = st.one_of(
    st.integers(0, 10), st.integers(-(10**17), 10**20), st.sampled_from(["null", "01", "-3", '"5"', "1.5"])
)
kineto_names = st.sampled_from(
    ["aten::mm", "gemm_128x64", "gemm_128x064", "f.py(12): g", "f.py(1): g", "é 7", "\\u00e9", "a\\n1"]
)
kineto_tracks = st.sampled_from(["1", "2", "12", '"1"', '"stream 7"', "-1", "null", '""'])
_KINETO_ENTRY = (
    '  {{\n    "ph": "{}", {}"cat": "{}", "name": "{}", "pid": {}, "tid": {},\n    "ts": {}{},\n    {}\n  }}'
)


@st.composite
def kineto_entries(draw: st.DrawFn) -> str:
    """An entry in Kineto's layout: few names and tracks, all sorts of numbers."""
    ph = draw(st.sampled_from("XXXXXXXXisfbM"))
    cat = draw(st.sampled_from(["cpu_op", "kernel", "python_function", "ac2g", "ac3g", "cuda_runtime", "x1_runtime"]))
    id_text = f'"id": {draw(kineto_numbers)}, ' if ph in "sfb" else ""
    duration = draw(kineto_durations) if ph == "X" else None
    arg_names = ["External id", "correlation", "Python id", "stream", "Bytes", "bytes", "Sequence number", "other"]
    keys = draw(st.lists(st.sampled_from(arg_names), max_size=3, unique=True))
    parts = [f'"{key}": {draw(kineto_numbers)}' for key in keys]
    if cat == "kernel":
        parts.append(f'"grid": [{draw(kineto_numbers)}, 1, 1]')
    last = '"args": {\n      ' + ", ".join(parts) + "\n    }" if ph != "s" else '"bp": "e"'
    dur = "" if duration is None else f', "dur": {duration}'
    name, pid, tid = draw(kineto_names), draw(kineto_tracks), draw(kineto_tracks)
    return _KINETO_ENTRY.format(ph, id_text, cat, name, pid, tid, draw(kineto_times), dur, last)
