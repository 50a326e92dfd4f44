"""Ten questions for somebody who has worked through three cases of `learn`: about a sample that no case uses.

They were written before the cases. A reader of one of the articles who has never seen the program before should answer
eight of ten. Each answer is computed twice: from the raw JSON of the trace, and from what the program answers.
`python -m tests.learn.test_ten_questions` prints the questions; with `--answers` the answers, too.
"""

from __future__ import annotations

import gzip
import json
import statistics
import sys
from collections import Counter
from functools import cache
from typing import Any

import pytest

import torchprof_tui
from tests.helpers.long_run import keep_some
from tests.helpers.paths import SAMPLES
from torchprof_tui.learn.case_file import list_cases

SAMPLE = "attention_naive"

QUESTIONS = {
    "wide-step": "Which step is the widest? (its number)",
    "gpu-of-wide-step": "How many times as long as step #3's does the GPU work of the widest step take? (1 digit)",
    "work-per-step": "How many kernels, copies and fills does step #3 launch?",
    "copy": "The program has no copy: which op that it calls (the outermost) launches the copy from device to device?",
    "hotspot": "Which op of the program takes most of the GPU's time?",
    "regime": "What limits this program: compute-bound, overhead-bound, or something else?",
    "no-launch": "How many kernels does one call of aten::transpose launch?",
    "queue": "Is the GPU still busy with step #2 when the CPU begins step #4? (yes, no)",
    "trailing-sync": "How much of the wait in cudaDeviceSynchronize is the GPU at work? (%, to the nearest 10)",
    "backend": "Which op does aten::matmul call that launches the kernel?",
}
"""Question by id; the answers are texts and whole numbers."""


@cache
def read_raw() -> list[dict[str, Any]]:
    """Read the events with a duration from the raw JSON; times in µs."""
    with gzip.open(SAMPLES / f"{SAMPLE}.pt.trace.json.gz") as file:
        return [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]


def answer_from_raw() -> dict[str, object]:
    """Answer all questions from the raw JSON."""
    raw = read_raw()
    by_correlation = {
        event["args"]["correlation"]: event for event in raw if event["cat"] in ("cuda_runtime", "cuda_driver")
    }
    work = [event for event in raw if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
    launched = [
        (event, by_correlation[event["args"]["correlation"]])
        for event in work
        if event["args"]["correlation"] in by_correlation
    ]
    steps = sorted((e for e in raw if e["name"].startswith("ProfilerStep") and e["cat"] == "user_annotation"), key=_ts)
    ops = [event for event in raw if event["cat"] == "cpu_op"]

    def list_callers(launch: dict[str, Any]) -> list[dict[str, Any]]:
        return sorted((op for op in ops if _contains(op, launch)), key=_ts)

    of_step = {
        step["name"].partition("#")[2]: [event for event, launch in launched if _contains(step, launch)]
        for step in steps
    }
    widest = max(steps, key=lambda step: step["dur"])["name"].partition("#")[2]
    copy_callers = Counter(list_callers(launch)[0]["name"] for event, launch in launched if "DtoD" in event["name"])
    gpu_time: Counter[str] = Counter()
    for event, launch in launched:
        gpu_time[list_callers(launch)[0]["name"]] += event["dur"]
    last_sync = max((e for e in raw if e["name"] == "cudaDeviceSynchronize"), key=_ts)
    covered = sum(
        max(0, min(_end(e), _end(last_sync)) - max(e["ts"], last_sync["ts"])) for e in work
    )  # one stream: no overlap
    first, last = steps[0]["ts"], max(map(_end, work))
    busy = sum(event["dur"] for event in work) / (last - first)
    calls = sum(op["name"] == "aten::transpose" for op in ops)
    by_transpose = sum(any(op["name"] == "aten::transpose" for op in list_callers(launch)) for _, launch in launched)
    gemm_callers = Counter(
        list_callers(launch)[-1]["name"]
        for event, launch in launched
        if any(op["name"] == "aten::matmul" for op in list_callers(launch)) and event["cat"] == "kernel"
    )
    return {
        "wide-step": int(widest),
        "gpu-of-wide-step": round(_sum(of_step[widest]) / _sum(of_step["3"])),
        "work-per-step": len(of_step["3"]),
        "copy": copy_callers.most_common(1)[0][0],
        "hotspot": gpu_time.most_common(1)[0][0],
        "regime": "compute-bound" if busy > 0.85 else "overhead-bound" if busy < 0.3 else "something else",
        "no-launch": by_transpose // calls,
        "queue": "yes" if max(map(_end, of_step["2"])) > steps[2]["ts"] else "no",
        "trailing-sync": round(covered / last_sync["dur"] * 10) * 10,
        "backend": gemm_callers.most_common(1)[0][0],
    }


def answer_from_program() -> dict[str, object]:
    """Answer all questions from the program's own answers, as the screens show them."""
    trace = torchprof_tui.open(f"sample:{SAMPLE}", cache=False)
    check, table = trace.check(), trace.table()
    steps = {step.number: step for step in trace.steps}
    widest = max(steps.values(), key=lambda step: step.duration_ns)
    gpu = {
        number: [row for row in trace.table(step=number).rows if row.device == "GPU" and not row.annotation]
        for number in steps
    }
    sync = check.finding("trailing-sync")
    idle = float(sync.seen.rpartition(": ")[2].partition(" %")[0])
    named = {row.name: row for row in table.rows if row.device == "CPU"}
    copies = trace.events.find("Memcpy DtoD (Device -> Device)")
    outermost = next(hop.name for hop in trace.chain(int(copies[0])).chain if hop.name.startswith("aten::"))
    matmul = [hop.name for hop in trace.chain("aten::matmul").chain if hop.name.startswith("aten::")][-1]
    roots = {
        hop.name
        for name in named
        if name.startswith("aten::")
        for hop in trace.chain(name).chain[:3]
        if hop.name.startswith("aten::")
    }
    last_of_first = max(
        hop.start_ns + hop.duration_ns
        for nth in range(named["aten::matmul"].calls // len(steps))
        for hop in trace.chain("aten::matmul", nth=nth).chain
    )
    return {
        "wide-step": widest.number,
        "gpu-of-wide-step": round(_total(gpu[widest.number or 0]) / _total(gpu[3])),
        "work-per-step": sum(row.calls for row in gpu[3]),
        "copy": outermost,
        "hotspot": max(roots, key=lambda name: named[name].gpu_us),
        "regime": str(check.verdict.regime),
        "no-launch": sum(row.calls for row in [named["aten::transpose"]] if row.gpu_us),
        "queue": "yes" if last_of_first > steps[4].start_ns else "no",
        "trailing-sync": round((100 - idle) / 10) * 10,
        "backend": matmul,
    }


def _ts(event: dict[str, Any]) -> float:
    return float(event["ts"])


def _end(event: dict[str, Any]) -> float:
    return float(event["ts"] + event["dur"])


def _sum(work: list[dict[str, Any]]) -> float:
    return float(sum(event["dur"] for event in work))


def _total(rows: list[Any]) -> float:
    return float(sum(row.gpu_us for row in rows))


def _contains(outer: dict[str, Any], inner: dict[str, Any]) -> bool:
    return bool(outer["tid"] == inner["tid"] and outer["ts"] <= inner["ts"] and _end(inner) <= _end(outer))


@pytest.mark.parametrize("question", keep_some(QUESTIONS, 2))
def test_the_program_answers_each_question_as_the_raw_file_does(question: str) -> None:
    assert answer_from_program()[question] == answer_from_raw()[question]


def test_no_case_uses_the_sample_of_the_questions() -> None:
    assert len(QUESTIONS) == 10
    for case in list_cases().cases:
        assert SAMPLE not in (case.sample, case.against)


def test_the_widest_step_is_wider_than_noise() -> None:
    durations = [event["dur"] for event in read_raw() if event["name"].startswith("ProfilerStep#")]
    durations = sorted(durations)
    assert durations[-1] > 1.5 * statistics.median(durations[:-1])


if __name__ == "__main__":
    answers = answer_from_raw()
    for number, (name, text) in enumerate(QUESTIONS.items(), 1):
        print(f"{number:>2} {text}{f'   {answers[name]}' if '--answers' in sys.argv else ''}")
