"""Compare what is read of a text that is cut or damaged at any byte with what is stored: columns, chunks, problems."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any
from zlib import crc32

import numpy as np

from tests.helpers.decoder_input import decode_text, kineto_entry, kineto_text
from tests.helpers.stored_answers import compare_answers, join_array
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.decode.json_document import describe_file, describe_object

SMALL = (
    rb'{"schemaVersion": 1, "k": {"a": [1, "}]"]}, "s\"": "x\\", "traceEvents": ['
    rb'{"ph":"X","name":"a\"","ts":1,"dur":2},'
    rb'{"ph":"X","name":"b","ts":"3.5","dur":-1,"args":{"k":[{}]}} , 7, '
    rb'{"ph":"i","ts":"x"},],"after": [1, {"b": 2}]} end'
)

ODD_ENTRIES = (
    kineto_entry(5, ts="1e3"),
    kineto_entry(5, ts="9007199254740.993"),
    kineto_entry(5, ts="4000000000000001.5", dur="8000000000001"),
    kineto_entry(5, ts="-12.0625", dur="007"),
    kineto_entry(5, ts="-5000000000000000"),
    kineto_entry(5, dur="-9000000000000.5"),
    kineto_entry(5, args='"correlation": 12345678901234567, "stream": -7, "grid": [1, 20, 300]'),
    kineto_entry(5, args='"correlation": 1.5, "grid": [1, 2]'),
    kineto_entry(5, name=r'"a\u00e9\\"'),
    kineto_entry(5, ph='"C"', args='"value": 1234567.000000001'),
    kineto_entry(5, ph='"C"', args='"a": 1, "b": 2'),
    kineto_entry(5, ph='"s"', id="17"),
    kineto_entry(5, ph='"M"', name='"process_name"', args='"name": "python"'),
    '  {\n    "ph": "X", broken',
    "  17",
    '  {\n    "name": {"ph": 1}}',
)

LISTS = (
    r"| |,|,,|{}|{},|{},,|,{}|{},,{}|{} {}|{}{}|[|[]|[{}]|[],{}|1|1,2,|]|]]|}|}]|{]|{}]|{}],{}|{},]|{},]]|{|{},{"
    r'|{},{},{|x|x,{}|{},x|{},x,{}|null|null,|"|"a"|"a|"]"|\|"\|{"a\":|{"a":1}x,{}|{"a":[}|{"a":{]}|{"a":}'
)
"""What stands between the brackets of a list, right or wrong, separated by `|`."""

HEADS = (
    *(b"", b" \n", b"PK\x03\x04", b"BZh9", b"\x1f\x8b", b"SQLite format 3\0", b"NVR\0", b"NVP\0", b"\xff\xfea\0"),
    *(
        b"\xfe\xff\0a",
        b"a\0b\0",
        b"\0a\0b",
        b"a\0\0b",
        b"\0\0ab",
        b"abc\0\0",
        b"\x80\x02",
        b"\x80\x05.segments",
        b"\x80\x06",
    ),
    *(
        b"<html>",
        b'<img src="data:image/png;base64,">',
        b"NVIDIA Nsight Systems",
        b"NVIDIA Tegra System Profiler Stream",
    ),
    *(b"{NVIDIA Nsight Systems", b"QuadD", b"x" * 256 + b"QuadD", b"\x0a\x05\x12\x09/host:CPU", b"\x05\x0a\x051.2.3"),
    *(b"5", b"[1] [2]", b'"text"', b"hello\x01", b"hello\x01\x02", b"a" * 31 + b"\x01" * 2, b"a" * 63 + b"\x01" * 2),
    *(b"a" * 62 + b"\x01" * 2, b"\x01" + b"a" * 1100, b"a" * 1024 + b"\0", b"a" * 1023 + b"\0", b"a" * 500),
)


def describe_columns(decoded: Any) -> str:
    events = decoded.events
    names = ("phase", "time", "duration", "name", "category", "track", "correlation", "id")
    columns = b"".join(np.ascontiguousarray(getattr(events, name)).tobytes() for name in names)
    args = {key: (arg.entries.tolist(), arg.values.tolist()) for key, arg in events.args.items()}
    texts = (events.names, events.categories, events.tracks, events.ids, events.metadata)
    points = [getattr(events.counters, each.name) for each in fields(events.counters)]
    more = repr([args, texts, [each.tolist() if isinstance(each, np.ndarray) else each for each in points]])
    return f"{len(events)} entries {crc32(columns):08x} {crc32(more.encode()):08x}"


def describe_text(text: bytes, **options: Any) -> str:
    try:
        decoded = decode_text(text, **options)
    except TraceError as error:
        return str(error)
    index: Any = decoded.text
    chunks = f"chunks {join_array(index.first)} {join_array(index.offset)} {join_array(index.length)}"
    problems = [(problem.kind, problem.count, problem.example) for problem in decoded.problems]
    return f"{describe_columns(decoded)}, {chunks}, {decoded.header} {decoded.not_objects} {problems}"


def describe_texts() -> Iterator[str]:
    for end in range(0, len(SMALL) + 1, 3):
        yield f"first {end} bytes: {describe_text(SMALL[:end], chunk_size=40)}"
    for place in range(1, len(SMALL), 3):
        yield f"without byte {place}: {describe_text(SMALL[:place] + SMALL[place + 1 :], chunk_size=64)}"
    for size in (1, 150, 900, 1 << 18):
        yield f"plain, {size}: {describe_text(kineto_text(40), chunk_size=size)}"
    for body in LISTS.split("|"):
        for text in (f"[{body}]", f'{{"traceEvents":[{body}]}}', f'{{"traceEvents":[{{}},{body}', f"[{body}] {{}}"):
            yield f"{text!r}: {describe_text(text.encode(), chunk_size=8)}"
    for number, entry in enumerate(ODD_ENTRIES):
        for place in (0, 17, 39):
            yield f"odd {number} at {place}: {describe_text(kineto_text(40, {place: entry}), chunk_size=600)}"


def describe_files() -> Iterator[str]:
    for head in HEADS:
        yield f"{head[:40]!r}: {describe_file(head, 'a.QDREP')} | {describe_file(head)}"
    keys = (
        {"shared", "profiles"},
        {"shared"},
        {"schema", "nodes"},
        {"nodes"},
        {"segments", "device_traces"},
        {"segments"},
    )
    for each in keys:
        yield f"{sorted(each)}: {describe_object(each, {})}"
    for header in ({"$schema": "https://www.speedscope.app/x"}, {"schema": "1.0.2-chakra.0.0.4"}, {"schema": 5}):
        yield f"{header}: {describe_object([], header)}"


def test_answers_of_texts() -> None:
    compare_answers("decode", [*describe_texts(), *describe_files()])
