"""Test the sheets of kernels, copies, collectives and memory, and their export as JSON, CSV, Markdown."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.long_run import scale_examples
from tests.helpers.paths import SAMPLES
from tests.helpers.trace_builder import cpu, kernel, memcpy, memory, memset, trace
from torchprof_samples import find
from torchprof_tui.analysis.search.name_search import BadPattern
from torchprof_tui.analysis.table.event_scope import range_mask
from torchprof_tui.analysis.table.export import to_csv, to_json, to_markdown, to_records
from torchprof_tui.analysis.table.gpu_sheets import (
    build_collectives_sheet,
    build_copies_sheet,
    build_kernels_sheet,
)
from torchprof_tui.analysis.table.groups import Profile
from torchprof_tui.analysis.table.memory_sheet import build_memory_sheet, find_memory_peaks
from torchprof_tui.analysis.table.sheets import Sheet, explain_empty_sheet, list_tables_with_rows
from torchprof_tui.analysis.table.table_sheet import NEGATIVE_SELF_TIME, build_table_sheet
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.ui.common.name_display import clean


def records_of(sheet: Sheet) -> list[dict[str, Any]]:
    """All rows of a sheet as records."""
    return to_records(sheet, range(len(sheet)))


def test_kernels_by_name() -> None:
    shown = trace(
        kernel("ampere_sgemm_128x64_tn", 0, 3),
        kernel("other", 10, 8),
        *(kernel("ampere_sgemm_128x64_tn", 20 + k, d) for k, d in enumerate((0.5, 0.25))),
        memcpy("Memcpy HtoD (Pageable -> Device)", 40, 5),
    )
    sheet = build_kernels_sheet(shown)
    first, second = records_of(sheet)
    assert first == {
        "name": "ampere_sgemm_128x64_tn",
        "display": "gemm fp32 128×64",
        "class": "gemm",
        "calls": 3,
        "total_us": 3.75,
        "share": 3.75 / 11.75,
        "avg_us": 1.25,
        "median_us": 0.5,
        "min_us": 0.25,
        "max_us": 3.0,
    }
    assert second["share"] == 8 / 11.75
    assert [shown.names[shown.name[event]] for event in sheet.members_of(0).tolist()] == ["ampere_sgemm_128x64_tn"] * 3
    assert records_of(build_kernels_sheet(shown, range_mask(shown, 0, 5_000)))[0]["calls"] == 1
    assert [sheet.columns["name"][k] for k in sheet.sort_rows("total").tolist()] == ["other", "ampere_sgemm_128x64_tn"]


def test_copies_have_bytes_and_speed() -> None:
    shown = trace(
        memcpy("Memcpy HtoD (Pinned -> Device)", 0, 2, bytes=50_000),
        memcpy("Memcpy HtoD (Pinned -> Device)", 10, 1, bytes=50_000),
        memcpy("Memcpy DtoD (Device -> Device)", 20, 1),
        memset("Memset (Device)", 30, 0, bytes=16),
    )
    to_device, inside, fill = sorted(
        records_of(build_copies_sheet(shown)), key=lambda row: -float(str(row["total_us"]))
    )
    assert (to_device["bytes"], to_device["gb_s"], to_device["max_gb_s"]) == (100_000, pytest.approx(100 / 3), 50.0)
    assert (inside["bytes"], inside["gb_s"]) == (None, None)
    assert (fill["bytes"], fill["gb_s"]) == (16, None)  # no time, no speed


def test_collectives_by_operation_type_and_group(tmp_path: Path) -> None:
    args = {"dtype": "BFloat16", "Group size": 4, "Process Group Description": "dp"}
    entries = [
        kernel("ncclDevKernel_AllGather_RING_LL(x)", 0, 2, **args, **{"Collective name": "allgather"}),
        kernel("ncclDevKernel_AllGather_RING_LL(x)", 10, 4, **args, **{"Collective name": "allgather"}),
        kernel("ncclDevKernel_SendRecv(x)", 20, 1),
    ]
    for entry in entries[:2]:
        entry["args"] |= {"In msg nelems": 1_000, "Out msg nelems": 4_000}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": entries}))
    gather, other = records_of(build_collectives_sheet(load_trace(str(path), cache=False)))
    assert (gather["name"], gather["dtype"], gather["group"], gather["calls"]) == ("allgather", "BFloat16", "dp × 4", 2)
    assert (gather["bytes"], gather["gb_s"], gather["max_gb_s"]) == (16_000, pytest.approx(16 / 6), 4.0)
    assert (other["name"], other["bytes"]) == ("ncclDevKernel_SendRecv(x)", None)


def test_memory_belongs_to_the_innermost_operator() -> None:
    shown = trace(
        cpu("outer", 0, 20),
        cpu("aten::empty", 5, 5),
        memory(6, 512, 512, device=0, reserved=2048),
        memory(8, 256, 768, device=0, reserved=2048),
        memory(15, -512, 256, device=0, reserved=1024),
        memory(9, 64, 64),
        memory(40, 32, 96),
    )
    calls = Profile(shown).calls
    sheet = build_memory_sheet(shown, calls)
    row_of = {(row["name"], row["device"]): row for row in records_of(sheet)}
    assert {
        key: (row["allocations"], row["allocated_bytes"], row["freed_bytes"], row["net_bytes"])
        for key, row in row_of.items()
    } == {
        ("aten::empty", "GPU 0"): (2, 768, 0, 768),
        ("aten::empty", "CPU"): (1, 64, 0, 64),
        ("outer", "GPU 0"): (0, 0, 512, -512),
        ("(outside of all calls)", "CPU"): (1, 32, 0, 32),
    }
    assert row_of["aten::empty", "GPU 0"]["largest_bytes"] == 512
    for row in range(len(sheet)):
        events = sheet.members_of(row).tolist()
        assert {shown.names[shown.name[event]] for event in events} <= {sheet.columns["name"][row]}
    cpu_peak, gpu_peak = find_memory_peaks(shown)
    assert (cpu_peak.device, cpu_peak.allocated, cpu_peak.allocated_at) == ("CPU", 96, 40_000)
    assert (gpu_peak.device, gpu_peak.allocated, gpu_peak.reserved) == ("GPU 0", 768, 2048)
    assert len(build_memory_sheet(shown, calls, range_mask(shown, 0, 4_000))) == 1
    nothing = trace(cpu("a", 0, 1))
    assert len(build_memory_sheet(nothing, Profile(nothing).calls)) == 0
    assert find_memory_peaks(nothing) == []


def held_by_dictionary(entries: list[dict[str, Any]]) -> dict[str, int]:
    """Follow the records one by one: bytes that are still allocated at the end, by the name of who allocated them."""
    live: dict[tuple[int, int], tuple[str, int]] = {}
    for entry in sorted((entry for entry in entries if entry["name"] == "[memory]"), key=lambda entry: entry["ts"]):
        args = entry["args"]
        place = (args["Device Id"], args["Addr"])
        live.pop(place, None)
        if args["Bytes"] > 0:
            around = [e for e in entries if e["ph"] == "X" and e["ts"] <= entry["ts"] < e["ts"] + e["dur"]]
            live[place] = (around[-1]["name"] if around else "(outside of all calls)", args["Bytes"])
    held: Counter[str] = Counter()
    for name, size in live.values():
        held[name] += size
    return held


def test_what_an_operator_holds_is_told_from_what_it_frees() -> None:
    """`net` of the operator that frees is negative; what `leak` allocated is the only memory left."""
    entries = [
        cpu("forward", 0, 10),
        cpu("leak", 20, 10),
        cpu("backward", 40, 10),
        cpu("again", 60, 10),
        memory(1, 512, 512, device=0, address=100),
        memory(2, 64, 576, device=0, address=200),
        memory(21, 256, 832, device=0, address=300),
        memory(41, -512, 320, device=0, address=100),
        memory(42, -64, 256, device=0, address=200),
        memory(43, -4096, 256, device=0, address=900),  # allocated before the recording
        memory(61, 512, 768, device=0, address=100),  # the address of a freed block, for a new one
        memory(62, -512, 256, device=0, address=100),
        memory(63, 8, 8, address=100),  # the CPU's address 100 is another one
    ]
    shown = trace(*entries)
    sheet = build_memory_sheet(shown, Profile(shown).calls)
    rows = {(row["name"], row["device"]): row for row in records_of(sheet)}
    assert {key: (row["held_bytes"], row["net_bytes"], row["freed_bytes"]) for key, row in rows.items()} == {
        ("forward", "GPU 0"): (0, 576, 0),
        ("leak", "GPU 0"): (256, 256, 0),
        ("backward", "GPU 0"): (0, -4672, 4672),
        ("again", "GPU 0"): (0, 0, 512),
        ("again", "CPU"): (8, 8, 0),
    }
    assert sheet.totals == ("0.0 MiB freed here were allocated before the recording",)


def test_a_free_that_was_not_recorded_ends_with_the_next_allocation() -> None:
    shown = trace(cpu("a", 0, 10), cpu("b", 20, 10), memory(1, 512, 512, address=7), memory(21, 128, 640, address=7))
    sheet = build_memory_sheet(shown, Profile(shown).calls)
    assert {row["name"]: row["held_bytes"] for row in records_of(sheet)} == {"a": 0, "b": 128}


def test_without_addresses_nothing_is_claimed() -> None:
    entries = [cpu("a", 0, 10), memory(1, 512, 512, device=0, address=0), memory(2, 64, 64, address=5)]
    sheet = build_memory_sheet(shown := trace(*entries), Profile(shown).calls)
    assert {row["device"]: row["held_bytes"] for row in records_of(sheet)} == {"GPU 0": None, "CPU": 64}
    assert sheet.totals == ("held at end is unknown for GPU 0: this trace records no addresses",)


@settings(max_examples=scale_examples(2), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([-64, 32, 64]), st.integers(-1, 1)), max_size=25))
def test_held_memory_against_a_dictionary(steps: list[tuple[int, int, int]]) -> None:
    entries = [cpu(f"op{k // 5}", 10 * k, 8) for k in range(len(steps))]
    entries += [
        memory(10 * k + 1, size, 0, device=device, address=1 + place) for k, (place, size, device) in enumerate(steps)
    ]
    shown = trace(*entries)
    sheet = build_memory_sheet(shown, Profile(shown).calls)
    found: Counter[str] = Counter()
    for row in records_of(sheet):
        found[row["name"]] += int(row["held_bytes"])
    assert +found == +Counter(held_by_dictionary(entries))


def test_held_memory_of_a_sample_against_a_loop() -> None:
    """The records of a training run one by one: what is live at the end is what the rows hold."""
    shown = load_trace(str(find("train_gpt_stack_memory").path), cache=False)
    records = shown.memory
    assert records is not None
    live: dict[tuple[int, int, int], int] = {}
    for place, size in zip(
        zip(records.device_type.tolist(), records.device_id.tolist(), records.address.tolist(), strict=True),
        records.bytes.tolist(),
        strict=True,
    ):
        live.pop(place, None)
        if size > 0:
            live[place] = size
    expected = Counter({"CPU": 0, "GPU 0": 0})
    for (device_type, _, _), size in live.items():
        expected["GPU 0" if device_type else "CPU"] += size
    rows = records_of(build_memory_sheet(shown, Profile(shown).calls))
    found = Counter({"CPU": 0, "GPU 0": 0})
    for row in rows:
        found[row["device"]] += row["held_bytes"]
    assert found == expected
    assert any(row["net_bytes"] < 0 <= row["held_bytes"] for row in rows)
    assert any(row["net_bytes"] > row["held_bytes"] for row in rows)  # freed by somebody else


def test_sheets_of_samples_lose_nothing() -> None:
    shown = load_trace(str(find("train_gpt_stack_memory").path), cache=False)
    kinds = Counter(shown.kind.tolist())
    assert int(np.sum(build_kernels_sheet(shown).columns["calls"])) == kinds[Kind.KERNEL]
    assert int(np.sum(build_copies_sheet(shown).columns["calls"])) == kinds[Kind.COPY] + kinds[Kind.MEMSET]
    assert len(build_collectives_sheet(shown)) == 0
    sheet = build_memory_sheet(shown, Profile(shown).calls)
    assert shown.memory is not None
    assert int(np.sum(sheet.columns["net"])) == int(shown.memory.bytes.sum())
    assert int(np.sum(sheet.columns["allocations"])) == int((shown.memory.bytes > 0).sum())


def test_the_tables_sheet_sorts_and_filters() -> None:
    profile = Profile(load_trace(str(find("matmul_add_64_cold_eager").path), cache=False))
    sheet = build_table_sheet(profile.build_table(), profile.calls)
    assert sheet.totals == ("Self CPU time total: 397.288us", "Self GPU time total: 11.008us")
    parts = (("self_", ""), ("self_", "_share"), ("", ""), ("", "_share"), ("", "_avg"))
    times = [f"{own}{side}{suffix}" for side in ("cpu", "gpu") for own, suffix in parts]
    assert {field.key for field in sheet.fields} == {"name", "device", "calls", *times}
    for key in ("name", "calls", *times):
        assert sorted(sheet.sort_rows(key).tolist()) == list(range(len(sheet)))
    longest = int(sheet.sort_rows("cpu")[0])
    assert sheet.columns["name"][longest] == "ProfilerStep*"
    matches = sheet.filter_rows("aten::")
    assert not isinstance(matches, BadPattern)
    assert {str(sheet.columns["name"][row]) for row in np.flatnonzero(matches).tolist()} >= {"aten::mm", "aten::add"}
    with pytest.raises(KeyError):
        sheet.sort_rows("colour")


@pytest.mark.parametrize(("rank", "is_negative"), [("rank0", True), ("rank1", False)])
def test_a_negative_self_time_is_explained_where_torch_prints_one(rank: str, is_negative: bool) -> None:
    """Rank 0's profiler requested a buffer at the end of `forward` and the start of `backward`."""
    profile = Profile(load_trace(str(SAMPLES / "train_gpt_2ranks" / f"{rank}.pt.trace.json.gz"), cache=False))
    table = profile.build_table()
    assert (table.self_cpu < 0).any() == is_negative
    assert (NEGATIVE_SELF_TIME in build_table_sheet(table, profile.calls).totals) == is_negative


def test_export() -> None:
    profile = Profile(trace(cpu("a|b\n\x1b[31m", 0, 1.5), cpu("=c", 2, 1), kernel("k<1>", 5, 0.25)))
    sheet = build_table_sheet(profile.build_table(), profile.calls)
    assert [row["name"] for row in json.loads(to_json(sheet, [1, 0]))] == ["=c", "a|b\n\x1b[31m"]
    lines = list(csv.DictReader(io.StringIO(to_csv(sheet, range(3), clean))))
    assert [line["self_cpu_us"] for line in lines] == ["1.5", "1.0", "0.0"]
    assert lines[0]["name"] == "a|b··[31m"
    text = to_markdown(sheet, range(3), clean)
    assert "\x1b" not in text
    head, rule, first, *_ = text.splitlines()
    assert head.count("|") == rule.count("|") == first.replace("\\|", "").count("|")
    totals = "Self CPU time total: 2.500us  \nSelf GPU time total: 0.250us"
    assert text.endswith(f"{totals}\n")
    told = to_markdown(replace(sheet, reading="CPU 2 : GPU 1"), range(3), clean)
    assert told.endswith(f"{totals}  \nCPU 2 : GPU 1\n")


ON_CPU = [cpu("aten::add", 0, 20)]
ON_GPU = [*ON_CPU, kernel("k", 30, 5)]


@pytest.mark.parametrize(
    ("entries", "table", "is_restricted", "reason"),
    [
        (ON_CPU, "kernels", False, "ProfilerActivity.CUDA"),
        (ON_CPU, "collectives", True, "no GPU work was recorded"),
        (ON_CPU, "memory", False, "profile_memory=True"),
        (ON_GPU, "copies", False, "no copies or fills were recorded"),
        (ON_GPU, "collectives", False, "did not communicate"),
        (ON_GPU, "kernels", True, "no kernels in this part of the trace"),
        (ON_GPU, "calls", True, "no calls in this part of the trace"),
        ([], "calls", False, "no calls were recorded"),
    ],
)
def test_the_reason_is_that_of_the_trace(entries: list[object], table: str, is_restricted: bool, reason: str) -> None:
    assert reason in explain_empty_sheet(trace(*entries), table, is_restricted)


def test_tables_with_rows() -> None:
    assert list_tables_with_rows(trace(*ON_CPU)) == []
    assert list_tables_with_rows(trace(*ON_GPU)) == ["kernels"]
    shown = trace(*ON_CPU, memcpy("Memcpy HtoD (Pinned -> Device)", 40, 1), memory(5, 64, 64))
    assert list_tables_with_rows(shown) == ["copies", "memory"]
    assert list_tables_with_rows(trace(kernel("ncclDevKernel_AllReduce(x)", 0, 5))) == ["kernels", "collectives"]
