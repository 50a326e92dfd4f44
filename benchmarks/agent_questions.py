"""76 questions with known answers, each put to the MCP server in one call: share answered, tokens per answer.

    python -m benchmarks.agent_questions

The answers come from the raw JSON (`benchmarks.raw_answers`) and, for the recordings with an injected fault, from what
was injected (`tools.fault_programs`); no answer comes from the program. A question counts as answered if the field that
an agent reads has the known value. Tokens are characters / 4.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import Any

import mcp

from benchmarks import raw_answers as raws
from benchmarks.raw_answers import RawTrace
from tools.fault_programs.registry import FAULTS
from torchprof_samples import find
from torchprof_tui.commands.mcp.answers import Answerer
from torchprof_tui.commands.mcp.server import create_server

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "faults"
COUNT = 76
TOLERANCE = 1e-3
EAGER, COMPILED, MEMORY = "train_gpt_eager", "train_gpt_compile", "train_gpt_stack_memory"

Answer = dict[str, Any]


@dataclass(frozen=True)
class Question:
    """One question. `read`: what an agent reads in the answer; `expected`: the known value, or a test of it."""

    kind: str
    text: str
    tool: str
    arguments: dict[str, Any]
    read: Callable[[Answer], Any]
    expected: Any
    raw_tokens: int


@dataclass(frozen=True)
class Outcome:
    question: Question
    is_answered: bool
    tokens: int
    found: Any


def unpack_records(packed: Answer) -> list[Answer]:
    """Return the records of a table of columns and rows."""
    return [dict(zip(packed["columns"], row, strict=True)) for row in packed["rows"]]


@cache
def raw_of(name: str) -> RawTrace:
    return raws.read_raw(find(name).path)


def list_questions(folder: Path) -> list[Question]:
    """List all questions; `folder` gets the recordings with faults."""
    questions = [
        *_ask_about_faults(folder),
        *_ask_about_overviews(),
        *_ask_about_tables(),
        *_ask_about_chains(),
        *_ask_about_memory(),
        *_ask_about_memory_at(),
        *_ask_about_paths(),
        *_ask_about_changes(),
        *_ask_about_ranks(folder),
        *_ask_about_fleets(folder),
    ]
    assert len(questions) == COUNT, len(questions)
    return questions


def _ask_about_faults(folder: Path) -> Iterator[Question]:
    for name, fault in FAULTS.items():
        paths = sorted(FOLDER.glob(f"{name}.faulty*.json.gz"))
        target = folder / name
        target.mkdir()
        for path in paths:
            shutil.copy(path, target / path.name)
        spec = str(target if len(paths) > 1 else target / paths[0].name)
        mentions = re.compile("|".join(fault.sentence))
        yield Question(
            "what is wrong (injected faults)",
            f"{name}: what costs most, and why?",
            "findings",
            {"trace": spec},
            _read_sentences,
            lambda said, mentions=mentions: bool(mentions.search(said.lower())),
            sum(raws.read_raw(path).tokens for path in paths),
        )


def _read_sentences(answer: Answer) -> str:
    verdicts = [answer["verdict"], *answer.get("ranks", [])]
    return " / ".join(verdict["first"] for verdict in verdicts)


def _ask(
    kind: str, text: str, tool: str, sample: str, read: Callable[[Answer], Any], expected: Any, **more: Any
) -> Question:
    arguments = {"trace": f"sample:{sample}", **more}
    return Question(kind, f"{sample}: {text}", tool, arguments, read, expected, raw_of(sample).tokens)


def _ask_about_overviews() -> Iterator[Question]:
    kind = "what the trace holds"
    for sample in (EAGER, "attention_naive", "train_images_cpu"):
        steps = raws.list_steps(raw_of(sample))
        durations = [raws.to_ns(step["dur"]) for step in sorted(steps, key=lambda step: step["ts"])]
        read_steps = lambda said: [step["duration_ns"] for step in said["steps"]]  # noqa: E731
        yield _ask(kind, "how long is each step?", "overview", sample, read_steps, durations)
    expected = [device["name"] for device in raw_of(COMPILED).header["deviceProperties"]]
    read_devices = lambda said: [device["name"] for device in said["devices"]]  # noqa: E731
    yield _ask(kind, "which GPU?", "overview", COMPILED, read_devices, expected)
    for sample in (EAGER, COMPILED, "attention_naive", "geglu_mlp_eager", "multi_stream_overlap"):
        longest = next(iter(raws.sum_by_name(raw_of(sample), "kernel")))
        read_kernel = lambda said: unpack_records(said["kernels"])[0]["name"]  # noqa: E731
        yield _ask(kind, "which kernel takes most time?", "overview", sample, read_kernel, longest, full_names=True)
    for sample in (EAGER, "attention_flash", "multi_stream_overlap"):
        read_busy = lambda said: said["gpu_busy_ns"]["0"]  # noqa: E731
        yield _ask(kind, "how long was the GPU busy?", "overview", sample, read_busy, raws.measure_busy(raw_of(sample)))
    for sample in (EAGER, MEMORY):
        is_missing = not raw_of(sample).select("python_function")
        read_missing = lambda said: "stack" in said["not_recorded"]  # noqa: E731
        yield _ask(kind, "are Python stacks missing?", "overview", sample, read_missing, is_missing)


def _ask_about_tables() -> Iterator[Question]:
    kind = "calls, kernels, copies"
    for sample, op in (
        (EAGER, "aten::mm"),
        (COMPILED, "aten::mm"),
        (MEMORY, "aten::addmm"),
        ("attention_naive", "aten::softmax"),
        ("train_images_cpu", "aten::convolution"),
    ):
        expected = len(raw_of(sample).named(op))
        yield _ask(kind, f"how often is {op} called?", "table", sample, _read_calls(op), expected, name=op)
    for sample, rank in ((EAGER, 0), (EAGER, 4), (COMPILED, 1), ("geglu_mlp_eager", 2)):
        name, total = list(raws.sum_by_name(raw_of(sample), "kernel").items())[rank]
        read_total = lambda said: unpack_records(said)[0]["total_us"] * 1000  # noqa: E731
        yield _ask(kind, f"how long did {name[:40]} run?", "table", sample, read_total, total, of="kernels", name=name)
    for sample in (EAGER, "multi_stream_overlap"):
        copies = [each for each in raw_of(sample).select("gpu_memcpy") if "HtoD" in each["name"]]
        expected = sum(each["args"]["bytes"] for each in copies)
        read_bytes = lambda said: sum(row["bytes"] for row in unpack_records(said))  # noqa: E731
        yield _ask(
            kind, "how many bytes went to the GPU?", "table", sample, read_bytes, expected, of="copies", name="HtoD"
        )
    for sample, name in ((EAGER, "cudaDeviceSynchronize"), (COMPILED, "cudaLaunchKernel")):
        expected = len(raw_of(sample).named(name, "cuda_runtime"))
        yield _ask(kind, f"how many {name}?", "table", sample, _read_calls(name), expected, name=name)
    for sample in (EAGER, MEMORY):
        expected = sum(raws.sum_by_name(raw_of(sample), *raws.GPU_WORK).values())
        read_sum = lambda said: said["total_ns"]  # noqa: E731
        yield _ask(kind, "all GPU time of ops?", "flame", sample, read_sum, expected, by="op")


def _read_calls(name: str) -> Callable[[Answer], Any]:
    return lambda said: next(row["calls"] for row in unpack_records(said) if row["name"] == name)


def _ask_about_chains() -> Iterator[Question]:
    kind = "from an op to its kernel"
    for sample, op in (
        (EAGER, "aten::mm"),
        (EAGER, "aten::addmm"),
        (MEMORY, "aten::mm"),
        ("linear_eager", "aten::addmm"),
    ):
        nth, launch, work = raws.find_single_launch(raw_of(sample), op)
        more = {"event": op, "nth": nth}
        latency = raws.to_ns(work["ts"] - launch["ts"])
        read_latency = lambda said: said["launch_latency_ns"]  # noqa: E731
        yield _ask(kind, f"launch latency of {op} {nth}?", "chain", sample, read_latency, latency, **more)
        if sample != MEMORY:
            expected = [work["name"], work["args"]["grid"], work["args"]["registers per thread"]]
            yield _ask(kind, f"kernel, grid, registers of {op} {nth}?", "chain", sample, _read_kernel, expected, **more)


def _read_kernel(said: Answer) -> list[Any]:
    work = unpack_records(said["gpu_work"]["heaviest"])[0]["name"]
    return [work, said["footprint"]["grid"], said["footprint"]["registers_per_thread"]]


def _ask_about_memory() -> Iterator[Question]:
    kind = "memory"
    on_gpu = raws.list_memory(raw_of(MEMORY), 1)
    peak = max(args["Total Allocated"] for args in on_gpu)
    allocated = sum(args["Bytes"] for args in on_gpu if args["Bytes"] > 0)
    read_peak = lambda said: next(e["allocated_bytes"] for e in said["peaks"] if e["device"] == "GPU 0")  # noqa: E731
    yield _ask(kind, "peak of allocated GPU memory?", "memory", MEMORY, read_peak, peak)
    on_cpu = sum(args["Bytes"] for args in raws.list_memory(raw_of(MEMORY), 0) if args["Bytes"] > 0)
    read_all = lambda said: said["totals"]["allocated_bytes"]  # noqa: E731
    yield _ask(kind, "bytes allocated in all?", "memory", MEMORY, read_all, allocated + on_cpu)
    for sample in (EAGER, "attention_flash"):
        read_reason = lambda said: bool(said.get("cannot_tell"))  # noqa: E731
        yield _ask(kind, "peak memory? (not recorded)", "memory", sample, read_reason, True)


def _ask_about_memory_at() -> Iterator[Question]:
    kind = "memory at a time"
    records = raws.list_memory_entries(raw_of(MEMORY), 1)
    peak = max(records, key=lambda each: each["args"]["Total Allocated"])
    read_bytes = lambda said: said["at"]["alive_bytes"]  # noqa: E731
    expected = peak["args"]["Total Allocated"]
    yield _ask(kind, "bytes allocated at the peak?", "memory_at", MEMORY, read_bytes, expected)
    time = raws.to_ns(peak["ts"] - raws.find_first_start(raw_of(MEMORY)))
    yield _ask(kind, "when is the peak?", "memory_at", MEMORY, lambda said: said["at"]["time_ns"], time)
    middle = records[len(records) // 2]
    at = f"{raws.to_ns(middle['ts'] - raws.find_first_start(raw_of(MEMORY))) + 1}ns"
    expected = middle["args"]["Total Allocated"]
    yield _ask(kind, "bytes allocated in the middle?", "memory_at", MEMORY, read_bytes, expected, at=at)
    read_reason = lambda said: bool(said.get("cannot_tell"))  # noqa: E731
    yield _ask(kind, "what is alive? (not recorded)", "memory_at", EAGER, read_reason, True)


def _ask_about_paths() -> Iterator[Question]:
    """Ask about steps that the CPU limits, and about steps whose path is the work of one stream."""
    kind = "critical path"
    for sample in (EAGER, MEMORY):
        step = raws.list_steps(raw_of(sample))[-1]
        read_step = lambda said: said["duration_us"]  # noqa: E731
        more = {"step": int(step["name"].partition("#")[2])}
        yield _ask(
            kind, "how long is what limits the last step?", "critical_path", sample, read_step, step["dur"], **more
        )
    for sample in ("attention_naive", "geglu_mlp_eager"):
        step = raws.list_steps(raw_of(sample))[-1]
        end = max(each["ts"] + each["dur"] for _, each in raws.find_launched(raw_of(sample), step))
        expected = raws.measure_busy(raw_of(sample), step["ts"], end) / 1000
        more = {"step": int(step["name"].partition("#")[2])}
        yield _ask(
            kind, "how much GPU work limits the last step?", "critical_path", sample, _read_work, expected, **more
        )


def _read_work(said: Answer) -> float:
    rows = unpack_records(said["segments"])
    return float(sum(row["us"] for row in rows if row["kind"].partition(":")[0] in ("kernel", "copy", "memset")))


def _ask_about_changes() -> Iterator[Question]:
    kind = "what changed"
    for a, b in ((EAGER, COMPILED), ("geglu_mlp_eager", "geglu_mlp_compile")):
        arguments = {"a": f"sample:{a}", "b": f"sample:{b}"}
        tokens = raw_of(a).tokens + raw_of(b).tokens
        steps = [mean(step["dur"] for step in raws.list_steps(raw_of(name))) for name in (a, b)]
        read = lambda said: [said["step_us"]["a"], said["step_us"]["b"]]  # noqa: E731
        yield Question(kind, f"{a}, {b}: how long is a step?", "diff", arguments, read, steps, tokens)
    works = [
        len(raw_of(name).select(*raws.GPU_WORK)) / len(raws.list_steps(raw_of(name))) for name in (EAGER, COMPILED)
    ]
    read_work = lambda said: [said["gpu_work"]["a"], said["gpu_work"]["b"]]  # noqa: E731
    arguments = {"a": f"sample:{EAGER}", "b": f"sample:{COMPILED}"}
    tokens = raw_of(EAGER).tokens + raw_of(COMPILED).tokens
    yield Question(kind, "pieces of GPU work a step?", "diff", arguments, read_work, works, tokens)


def _ask_about_ranks(folder: Path) -> Iterator[Question]:
    """Ask which rank is late: the fault was injected into rank 1."""
    for name in ("late_rank", "slow_host_rank"):
        tokens = sum(raws.read_raw(path).tokens for path in FOLDER.glob(f"{name}.faulty*"))
        read = lambda said: max(said["totals"]["ranks"], key=lambda rank: rank["last"])["rank"]  # noqa: E731
        arguments = {"trace": str(folder / name), "of": "arrivals"}
        yield Question("ranks", f"{name}: which rank comes last most often?", "table", arguments, read, 1, tokens)


def _ask_about_fleets(folder: Path) -> Iterator[Question]:
    """Ask which rank is slow: the fault was injected into rank 1."""
    for name in ("late_rank", "slow_host_rank"):
        tokens = sum(raws.read_raw(path).tokens for path in FOLDER.glob(f"{name}.faulty*"))
        read = lambda said: unpack_records(said["faults"])[0]["ranks"]  # noqa: E731
        yield Question("fleets", f"{name}: what is wrong?", "fleet", {"trace": str(folder / name)}, read, [1], tokens)


def is_equal(found: Any, expected: Any) -> bool:
    """Compare what was read with the known value: numbers within TOLERANCE, as file and program round differently."""
    if callable(expected):
        return bool(expected(found))
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(is_equal, found, expected))
    if isinstance(expected, int | float) and not isinstance(expected, bool):
        return bool(abs(found - expected) <= TOLERANCE * abs(expected))
    return bool(found == expected)


async def ask_all(questions: list[Question], folder: Path) -> list[Outcome]:
    """Put each question in one call of a client of the SDK."""
    answerer = Answerer([str(folder)])
    outcomes = []
    async with mcp.Client(create_server(answerer)) as client:
        for question in questions:
            result = await client.call_tool(question.tool, question.arguments)
            text = result.content[0].text  # type: ignore[union-attr]
            try:
                found = question.read(json.loads(text))
                answered = not result.is_error and is_equal(found, question.expected)
            except (LookupError, StopIteration, TypeError, ValueError) as error:
                found, answered = f"{type(error).__name__}: {text[:200]}", False
            outcomes.append(Outcome(question, answered, len(text) // raws.CHARACTERS_PER_TOKEN, found))
    answerer.close()
    return outcomes


def format_outcomes(outcomes: list[Outcome]) -> Iterator[str]:
    """Yield the lines of a Markdown table, one row for each kind of question."""
    yield "| question | asked | answered in one call | tokens, median (most) | tokens of the file, median |"
    yield "|---|---|---|---|---|"
    for kind in [*dict.fromkeys(each.question.kind for each in outcomes), "all"]:
        chosen = [each for each in outcomes if kind in (each.question.kind, "all")]
        answered = sum(each.is_answered for each in chosen)
        tokens = [each.tokens for each in chosen]
        files = median(each.question.raw_tokens for each in chosen)
        share = f"{answered} ({answered / len(chosen):.0%})"
        yield f"| {kind} | {len(chosen)} | {share} | {median(tokens):,.0f} ({max(tokens):,}) | {files:,.0f} |"


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        outcomes = asyncio.run(ask_all(list_questions(folder), folder))
    print("\n".join(format_outcomes(outcomes)))
    for each in outcomes:
        if not each.is_answered:
            expected = "" if callable(each.question.expected) else f", known: {each.question.expected}"
            print(f"not answered: {each.question.text} found: {str(each.found)[:300]}{expected}")


if __name__ == "__main__":
    main()
