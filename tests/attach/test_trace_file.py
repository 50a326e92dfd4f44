"""What a scan finds in a recorded file, compared with what json.loads finds in it."""

from __future__ import annotations

import gzip
import itertools
import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.paths import SAMPLES, find_shared_trace
from torchprof_attach.host import trace_file
from torchprof_attach.host.trace_file import add_origin, scan

TRACES = [
    find_shared_trace("formats/ondemand/cpu_torch213_5iters.json.gz"),
    find_shared_trace("formats/ondemand/h100_torch211_5iters.json.gz"),
    SAMPLES / "train_gpt_2ranks" / "rank0.pt.trace.json.gz",
]


def unpack(trace: Path, folder: Path) -> tuple[Path, dict[str, Any]]:
    if not trace.exists():
        pytest.skip("needs the shared traces")
    text = gzip.decompress(trace.read_bytes())
    path = folder / "trace.json"
    path.write_bytes(text)
    return path, json.loads(text)


def list_steps(document: dict[str, Any]) -> list[int]:
    """List the ends of iterations, ns since 1970: the slow, obvious way."""
    events = [event for event in document["traceEvents"] if event.get("cat") == "user_annotation"]
    steps = [event for event in events if event["name"].startswith("ProfilerStep#")]
    steps = steps or [event for event in events if event["name"].startswith("Optimizer.step#")]
    base = document.get("baseTimeNanoseconds", 0)
    return sorted(base + round((event["ts"] + event["dur"]) * 1000) for event in steps)


@pytest.mark.parametrize("trace", TRACES, ids=lambda path: path.name)
@pytest.mark.parametrize("block", [4 << 20, 5000])
def test_a_scan_counts_as_json_does(trace: Path, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, document = unpack(trace, tmp_path)
    monkeypatch.setattr(trace_file, "BLOCK_BYTES", block)
    content = scan(str(path))
    kinds = [event.get("cat") for event in document["traceEvents"]]
    assert (content.operations, content.kernels) == (kinds.count("cpu_op"), kinds.count("kernel"))
    expected = list_steps(document)
    assert content.steps == pytest.approx(expected, abs=1000)  # floats of µs since 1970 resolve a µs
    gaps = [later - earlier for earlier, later in itertools.pairwise(expected)]
    assert content.step_seconds == pytest.approx(statistics.median(gaps) / 1e9, rel=0.01)
    assert content.size == path.stat().st_size
    assert not content.is_empty


def test_the_options_that_were_in_force_are_seen(tmp_path: Path) -> None:
    path, document = unpack(TRACES[0], tmp_path)
    assert scan(str(path)).found == ["shapes"]
    assert any("Input Dims" in event.get("args", {}) for event in document["traceEvents"])


def test_an_empty_trace_is_known(tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_text('{"schemaVersion": 1, "traceEvents": [{"ph": "M", "name": "process_name"}], "traceName": "x"}')
    content = scan(str(path))
    assert content.is_empty
    assert content.steps == []
    assert content.step_seconds is None


def test_rank_and_origin_are_written_into_the_file(tmp_path: Path) -> None:
    path, document = unpack(TRACES[0], tmp_path)
    assert add_origin(str(path), {"rank": 3, "world_size": 8, "host": 'a"b'})
    changed = json.loads(path.read_text())
    assert changed.pop("distributedInfo") == {"rank": 3, "world_size": 8}
    assert changed.pop("torchprof_attach") == {"rank": 3, "world_size": 8, "host": 'a"b'}
    assert changed == document


def test_a_file_that_kineto_did_not_write_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"traceEvents": []}')
    assert not add_origin(str(path), {"rank": 0, "world_size": 1})
    assert path.read_text() == '{"traceEvents": []}'
