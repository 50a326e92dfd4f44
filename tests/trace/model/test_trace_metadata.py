"""Top-level keys of any type become typed values or are absent, and what cannot be used is listed."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.trace_builder import cpu, kernel, metadata, trace
from torchprof_tui.analysis.doctor.examination import diagnose_trace
from torchprof_tui.trace.model.trace_metadata import DeviceProperties, TraceMetadata, read_trace_metadata
from torchprof_tui.ui.explorer.title_line import describe_trace

ODD: list[Any] = [[1], {"a": [2]}, -5, 1.5, 2**63, "9" * 5000, [[]], "text", orjson.loads("[" * 1000 + "]" * 1000)]

KEYS = (
    "deviceProperties",
    "distributedInfo",
    "baseTimeNanoseconds",
    "record_shapes",
    "pytorch_version",
    "cuda_runtime_version",
)


def test_what_torch_writes() -> None:
    header = {
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "numSms": 132, "computeMajor": 9, "computeMinor": 0}],
        "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
        "baseTimeNanoseconds": 1_700_000_000_000_000_000,
        "record_shapes": 1,
        "with_stack": True,
        "with_flops": 0,
        "pytorch_version": "2.6.0",
        "cuda_runtime_version": 12040,
    }
    assert read_trace_metadata(header) == (
        TraceMetadata(
            (DeviceProperties(0, "NVIDIA H200", {"computeMajor": 9, "computeMinor": 0, "numSms": 132}),),
            3,
            8,
            1_700_000_000_000_000_000,
            frozenset({"record_shapes", "with_stack"}),
            "2.6.0",
            12040,
        ),
        [],
    )
    assert read_trace_metadata({}) == (TraceMetadata(), [])


@pytest.mark.parametrize("value", ODD, ids=lambda value: str(type(value).__name__))
@pytest.mark.parametrize("key", [*KEYS, "distributedInfo.rank", "deviceProperties.name", "deviceProperties.id"])
def test_odd_values_are_absent_and_listed(key: str, value: Any) -> None:
    outer, _, inner = key.partition(".")
    below = [{inner: value}] if outer == "deviceProperties" else {inner: value}
    found, unusable = read_trace_metadata({outer: below if inner else value})
    if key in ("pytorch_version", "deviceProperties.name") and isinstance(value, (str, int, float)):
        assert unusable == []
    elif key in ("deviceProperties", "distributedInfo") and type(value) in (list, dict):
        assert found.rank is None
    else:
        assert len(unusable) == 1
        assert unusable[0].startswith(key.partition(".")[0])
        assert len(unusable[0]) < 250
        assert (found.rank, found.base_time, found.recorded) == (None, 0, frozenset())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "name", "rank"]), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(KEYS), json_values))
def test_any_header_becomes_metadata(header: dict[str, Any]) -> None:
    found, _ = read_trace_metadata(header)
    assert all(type(device.id) is int and type(device.name) is str for device in found.devices)
    assert found.rank is None or 0 <= found.rank < 2**31
    assert 0 <= found.base_time <= 2**62
    made = trace(cpu("aten::mm", 0, 5), kernel("k", 1, 2), header=header)
    assert describe_trace(made)


def test_the_doctor_reports_metadata_that_is_not_used() -> None:
    header = {"deviceProperties": [{"id": [1], "name": {"a": 1}}, 7], "distributedInfo": [1]}
    made = trace(cpu("op", 0, 5), metadata("process_name", [1, 2]), metadata("thread_name", {"a": 1}), header=header)
    remarks = {remark.kind: remark for remark in diagnose_trace(made).remarks}
    assert (remarks["metadata out of range"].count, remarks["lane name is not text"].count) == (4, 2)
    assert remarks["metadata out of range"].example == "distributedInfo: [1]"
    assert remarks["lane name is not text"].example == "process_name: [1,2]"


def test_long_names_are_cut() -> None:
    made = trace(cpu("op", 0, 5, thread=5), metadata("thread_name", "x" * 10**6, tid=5))
    assert len(made.lanes[0].label) < 5000
