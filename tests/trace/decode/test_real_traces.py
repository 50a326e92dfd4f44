"""Decode every shared trace: all decoders yield the same columns, and those of a slow reference.

Each file is decompressed once, and decoded once by each of the decoders, for all tests of the file.
"""

from __future__ import annotations

import gzip
import lzma
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import pytest

from tests.helpers.column_equality import assert_alike
from tests.helpers.decoder_input import KINETO_SEPARATOR
from tests.helpers.decoder_reference import (
    decoded_args,
    decoded_rows,
    expected_args,
    expected_rows,
    parse_entries,
)
from tests.helpers.decoder_spies import count_appended_parts, count_decoded_bytes
from tests.helpers.long_run import keep_some
from tests.helpers.paths import SHARED_TRACES, find_shared_traces, is_long, mark_long_traces
from torchprof_tui.trace.core.process_state import pause_garbage_collection
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.json_text.salvage import parse_chunk
from torchprof_tui.trace.model.raw_events import NO_TIME, DecodedTrace
from torchprof_tui.trace.sources.source import open_source

FILES = find_shared_traces()
BIG_TRACE = SHARED_TRACES / "big_llama_train_stack.pt.trace.json.xz"

_MAX_REFERENCE_BYTES = 25_000
"""Stored size of the files that are compared with the slow reference; it takes 0.1 ms per entry."""

_MIN_DIVIDED_BYTES = 1 << 21
"""Text of which every file is decoded in several processes, and one of twelve smaller files."""

_LARGER_FILES = [path for path in FILES if path.stat().st_size >= _MAX_REFERENCE_BYTES]
_SAMPLED = random.Random(2).sample(_LARGER_FILES, min(4, len(_LARGER_FILES)))
"""Larger files that are compared with orjson's entries."""


class RealTrace(NamedTuple):
    """A file, its text, and what the template decoder made of it; `template_bytes`: how much text it accepted."""

    path: Path
    text: bytes
    decoded: DecodedTrace
    template_bytes: int

    @property
    def is_kineto(self) -> bool:
        return is_kineto(self.text)

    @property
    def chunk_size(self) -> int:
        return choose_chunk_size(self.text)


def is_kineto(text: bytes) -> bool:
    """Whether the text has Kineto's own layout, which the template decoder accepts."""
    return KINETO_SEPARATOR in text[: 1 << 15]


def choose_chunk_size(text: bytes) -> int:
    """Choose a size with which small files have several chunks, too."""
    return 1 << 18 if len(text) > 4 << 20 else 1 << 14


@pytest.fixture(scope="module", params=keep_some(mark_long_traces(FILES), 12))
def real_trace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealTrace]:
    path: Path = request.param
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if not is_kineto(text) and len(text) > 40 << 20 and path not in _SAMPLED:
        pytest.skip("not Kineto's layout, and large")
    folder = tmp_path_factory.mktemp("real")
    with pytest.MonkeyPatch.context() as monkeypatch:
        spy = count_decoded_bytes(monkeypatch)
        options: dict[str, Any] = {"use_templates": True, "process_count": 1, "chunk_size": choose_chunk_size(text)}
        decoded = decode_trace(open_source(str(path)), folder, **options)
    yield RealTrace(path, text, decoded, spy.accepted)
    shutil.rmtree(folder)


def test_the_template_decoder_agrees_with_the_general_decoder(real_trace: RealTrace, tmp_path: Path) -> None:
    size = len(real_trace.text)
    if not real_trace.is_kineto and size > 40 << 20:
        pytest.skip("not Kineto's layout, and large")
    source = open_source(str(real_trace.path))
    general = decode_trace(source, tmp_path, use_templates=False, process_count=1, chunk_size=real_trace.chunk_size)
    assert_alike(real_trace.decoded, general, chunks=True)
    if real_trace.is_kineto and size > 1 << 19:
        assert real_trace.template_bytes > 0.8 * size


def test_several_processes_agree_with_one(
    real_trace: RealTrace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(real_trace.text)
    if not real_trace.is_kineto and size > 1 << 20:
        pytest.skip("not Kineto's layout, and large")
    spy = count_appended_parts(monkeypatch)
    if size < _MIN_DIVIDED_BYTES and FILES.index(real_trace.path) % 12 and not is_long(real_trace.path):
        pytest.skip("small, and not in the sample: starting processes takes longest")
    count = 2 if size > 4 << 20 else 3  # test_parallel.py has more
    options: dict[str, Any] = {"process_count": count, "chunk_size": real_trace.chunk_size}
    parallel = decode_trace(open_source(str(real_trace.path)), tmp_path, use_templates=True, **options)
    assert list(tmp_path.glob("part-*")) == []
    single = real_trace.decoded
    assert_alike(single, parallel, chunks=False)
    for ordinal in range(0, len(single.events), max(len(single.events) // 7, 1)):
        assert parallel.text.read_entry(ordinal, parse_chunk) == single.text.read_entry(ordinal, parse_chunk)
    if real_trace.is_kineto and size > _MIN_DIVIDED_BYTES:
        assert (spy.joined, spy.not_verified) == (1, 0)


def test_columns_equal_those_of_another_parser(real_trace: RealTrace) -> None:
    """The slow reference for small files, orjson's entries for a sample of the larger ones."""
    is_small = real_trace.path.stat().st_size < _MAX_REFERENCE_BYTES
    if not is_small and real_trace.path not in _SAMPLED:
        pytest.skip("large, and not in the sample")
    try:
        with pause_garbage_collection():
            document = orjson.loads(real_trace.text)
    except ValueError:
        pytest.skip("not valid JSON: see test_damage.py")
    entries = document if isinstance(document, list) else document["traceEvents"]
    if is_small:
        exact_entries = parse_entries(real_trace.text)
        assert decoded_rows(real_trace.decoded) == expected_rows(exact_entries)
        assert decoded_args(real_trace.decoded) == expected_args(exact_entries)
    else:
        assert_columns_equal_entries(real_trace.decoded, entries)
    assert real_trace.decoded.size == len(real_trace.text)
    assert real_trace.decoded.problems == []
    assert_entries_can_be_read(real_trace.decoded, entries, sample=40 if is_small else 25)


def assert_columns_equal_entries(decoded: DecodedTrace, entries: list[dict[str, Any]]) -> None:
    columns = decoded.events
    assert len(columns) == len(entries)
    assert [columns.names[k] for k in columns.name.tolist()] == [str(entry.get("name", "")) for entry in entries]
    assert [columns.categories[k] for k in columns.category.tolist()] == [entry.get("cat", "") for entry in entries]
    assert bytes(columns.phase).decode("latin-1") == "".join(entry["ph"] for entry in entries)
    micros = np.array([float(entry.get("ts", np.nan)) for entry in entries])
    timed = columns.time != NO_TIME
    assert np.array_equal(timed, ~np.isnan(micros))
    assert np.abs(columns.time[timed] / 1000 - micros[timed]).max() < 0.3


def assert_entries_can_be_read(decoded: DecodedTrace, entries: list[Any], sample: int) -> None:
    """Read the first, the last and some other entries from the stored text."""
    objects = [entry for entry in entries if isinstance(entry, dict)]
    count = len(objects)
    for ordinal in {0, count - 1, *random.Random(1).sample(range(count), min(sample, count))} if count else ():
        assert decoded.text.read_entry(ordinal, parse_chunk) == objects[ordinal]
    with pytest.raises(LookupError):
        decoded.text.read_entry(count, parse_chunk)


@pytest.mark.long
def test_decoders_agree_on_the_big_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark's trace: the general decoder in one process, and the template decoder in two."""
    if not BIG_TRACE.exists():
        pytest.skip("the big trace is missing")
    spy = count_appended_parts(monkeypatch)
    path = tmp_path / "big.json"
    with lzma.open(BIG_TRACE) as stored, path.open("wb") as text:
        shutil.copyfileobj(stored, text, 1 << 20)
    general = decode_trace(open_source(str(path)), tmp_path, use_templates=False, process_count=1)
    fast = decode_trace(open_source(str(path)), tmp_path, use_templates=True, process_count=2)
    assert_alike(general, fast, chunks=False)
    assert (spy.joined, spy.not_verified) == (1, 0)
