"""Several ranks of a serving engine: each has its own steps, and files that are no rank are left out and named."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import torchprof_tui as tt
from tests.helpers.command_line import call_main, read_error_line, read_json_answer, read_table_rows
from tests.helpers.paths import SHARED_TRACES
from tests.helpers.serving_traces import replayed_kernels, serving_entries, step_entries
from tests.helpers.trace_builder import Entry, annotation

FRONTEND = "gpu-box_77.async_llm.1763000000000009.pt.trace.json.gz"
GRAPHS = SHARED_TRACES / "graphs"


def write(path: Path, entries: Sequence[Entry], rank: int | None) -> None:
    whole: dict[str, Any] = {"schemaVersion": 1, "baseTimeNanoseconds": 1, "traceEvents": list(entries)}
    if rank is not None:
        whole["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 2}
    path.write_bytes(gzip.compress(json.dumps(whole).encode()))


@pytest.fixture
def vllm(tmp_path: Path) -> Path:
    """Two data-parallel ranks with two and three rounds of requests, and the file of vLLM's frontend."""
    for rank in range(2):
        name = f"dp{rank}_pp0_tp0_dcp0_ep{rank}_rank{rank}.176300000000000{rank}.pt.trace.json.gz"
        write(tmp_path / name, serving_entries(2 + rank), rank)
    write(tmp_path / FRONTEND, [annotation("handle_request", 0, 10_000)], None)
    return tmp_path


@pytest.fixture
def sglang(tmp_path: Path) -> Path:
    """Two tensor-parallel ranks of SGLang, decode steps and prompts in a file each."""
    for rank in range(2):
        decode = step_entries("step[DECODE bs=32]", 0, 50, replayed_kernels(5, 1, 20, 8, time=5 + rank))
        extend = step_entries("step[EXTEND bs=4 toks=400]", 0, 90, replayed_kernels(5, 1, 20, 8, time=8 + rank))
        write(tmp_path / f"1763000000.5-TP-{rank}-DECODE.trace.json.gz", decode, rank)
        write(tmp_path / f"1763000000.5-TP-{rank}-EXTEND.trace.json.gz", extend, rank)
    return tmp_path


def kinds_of(serving: dict[str, Any]) -> list[tuple[str, int]]:
    return [(kind["kind"], kind["steps"]) for kind in serving["kinds"]]


@pytest.mark.parametrize("command", ["info", "check"])
def test_each_rank_has_its_own_steps(capsys: pytest.CaptureFixture[str], vllm: Path, command: str) -> None:
    answer = read_json_answer(capsys, command, vllm, "--json")
    assert [(each["rank"], kinds_of(each)) for each in answer["serving"]] == [
        (0, [("prefill", 2), ("decode", 6), ("mixed", 2)]),
        (1, [("prefill", 3), ("decode", 9), ("mixed", 3)]),
    ]


def test_the_frontend_of_vllm_is_left_out_and_named(capsys: pytest.CaptureFixture[str], vllm: Path) -> None:
    status, out, err = call_main(capsys, "info", vllm)
    assert status == 0
    assert f"left out: {FRONTEND}: says no rank, and the others do" in err
    assert "Serving steps (rank 0, annotated as vLLM does)" in out
    assert "Serving steps (rank 1, annotated as vLLM does)" in out
    assert "handle_request" not in out


def test_the_table_of_a_rank_has_its_steps(capsys: pytest.CaptureFixture[str], vllm: Path) -> None:
    for rank in range(2):
        rows = read_table_rows(capsys, vllm, "--by", "step-kind", "--rank", str(rank))
        assert [(row["name"], row["steps"]) for row in rows if row["steps"]] == [
            ("prefill", 2 + rank),
            ("decode", 6 + 3 * rank),
            ("mixed", 2 + rank),
        ]
    reports = tt.open(vllm).check().serving
    assert [[kind.steps for kind in report.kinds] for report in reports] == [[2, 6, 2], [3, 9, 3]]


def test_markdown_has_a_section_for_each_rank(capsys: pytest.CaptureFixture[str], vllm: Path) -> None:
    lines = call_main(capsys, "check", vllm, "--markdown")[1].splitlines()
    assert [line for line in lines if line.startswith("## Serving")] == [
        "## Serving steps of rank 0",
        "## Serving steps of rank 1",
    ]


@pytest.mark.long
def test_stages_of_sglang_are_two_recordings_of_two_ranks(capsys: pytest.CaptureFixture[str], sglang: Path) -> None:
    line = read_error_line(capsys, "check", sglang)
    assert "2 recordings" in line
    for stage, kind, tokens in (("DECODE", "decode", 32), ("EXTEND", "prefill", 400)):
        answer = read_json_answer(capsys, "check", sglang / f"*-{stage}.trace.json.gz", "--json")
        assert [each["rank"] for each in answer["serving"]] == [0, 1]
        first, second = (each["kinds"][0] for each in answer["serving"])
        assert (first["kind"], first["tokens"], second["kind"], second["tokens"]) == (kind, tokens, kind, tokens)
        assert second["gpu_ns"] - first["gpu_ns"] == 8000


def test_files_of_one_rank_under_names_of_two_are_refused(capsys: pytest.CaptureFixture[str], sglang: Path) -> None:
    (sglang / "1763000000.5-TP-1-DECODE.trace.json.gz").write_bytes(
        (sglang / "1763000000.5-TP-0-DECODE.trace.json.gz").read_bytes()
    )
    line = read_error_line(capsys, "check", sglang / "*-DECODE.trace.json.gz")
    assert "are both of rank 0" in line


@pytest.mark.long
@pytest.mark.skipif(not GRAPHS.exists(), reason="needs the shared traces")
def test_two_ranks_of_a_real_step_have_the_numbers_of_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source = GRAPHS / "vllm_decode_full/graph_execution.json.gz"
    whole = json.loads(gzip.decompress(source.read_bytes()))
    for rank in range(2):
        whole["distributedInfo"] |= {"rank": rank, "world_size": 2}
        path = tmp_path / f"dp0_pp0_tp{rank}_dcp0_ep{rank}_rank{rank}.1763.pt.trace.json.gz"
        path.write_bytes(gzip.compress(json.dumps(whole).encode(), 1))
    (alone,) = read_json_answer(capsys, "info", source, "--json")["serving"]
    for each in read_json_answer(capsys, "info", tmp_path, "--json")["serving"]:
        assert each["kinds"] == alone["kinds"]
