"""The built-in workloads: each runs by itself and under the harness, and its trace shows what its docstring says."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.helpers.later_imports import skip_without
from tests.helpers.long_run import keep_some
from tests.helpers.paths import ROOT
from tests.profiler_runs.conftest import HARNESS, Start
from tools.record_samples import RECORDINGS
from torchprof_tui.trace.model.steps import StepKind, parse_step_name

FOLDER = HARNESS.parent / "workloads"
NAMES = (
    "matmul_add",
    "linear",
    "mlp",
    "attention",
    "train_gpt",
    "recompiles",
    "streams",
    "graph_replay",
    "generate",
    "train_images",
    "infer_resnet",
)
WITH_GPU = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0")}
SMALL_GPT = ("--layers", "1", "--width", "16", "--heads", "2", "--length", "8", "--batch", "2", "--dtype", "float32")
SMALL_MLP = ("--batch", "2", "--length", "4", "--width", "8", "--hidden", "16", "--dtype", "float32")


@pytest.mark.parametrize(
    ("command", "marks", "ops", "absent"),
    keep_some(
        [
            (("matmul_add", "--size", "8"), "matmul_add", {"aten::matmul", "aten::mm", "aten::add"}, {"aten::bmm"}),
            (("matmul_add", "--size", "8", "--batch", "2", "--warmup", "2"), "matmul_add", {"aten::bmm"}, {"aten::mm"}),
            (
                ("matmul_add", "--size", "8", "--op", "addmm"),
                "matmul_add",
                {"aten::addmm"},
                {"aten::matmul", "aten::add"},
            ),
            (("linear",), "linear_fwd", {"aten::linear", "aten::addmm", "aten::as_strided"}, {"aten::mm"}),
            (("linear", "--no-bias"), "linear_fwd", {"aten::linear", "aten::mm"}, {"aten::addmm"}),
            (("mlp", *SMALL_MLP), "mlp_fwd", {"aten::gelu", "aten::mul", "aten::mm"}, set()),
            (("attention", "--length", "8"), "attn_fwd", {"aten::masked_fill", "aten::clone", "aten::bmm"}, set()),
            (
                ("attention", "--backend", "inplace", "--length", "8"),
                "attn_fwd",
                {"aten::masked_fill_"},
                {"aten::clone"},
            ),
            (
                ("attention", "--backend", "math", "--length", "8"),
                "attn_fwd",
                {"aten::_scaled_dot_product_attention_math"},
                set(),
            ),
            (
                ("train_gpt", *SMALL_GPT, "--starve", "--workers", "1"),
                "backward",
                {"forward", "Optimizer.step#AdamW.step", "aten::embedding"},
                set(),
            ),
            (("recompiles", "--width", "4", "--backend", "eager"), "layer", {"aten::gelu", "aten::mul"}, set()),
            (
                ("train_images", "--edge", "16", "--width", "2", "--batch", "2"),
                "backward",
                {"forward", "Optimizer.step#SGD.step", "aten::_upsample_bilinear2d_aa"},
                set(),
            ),
            (
                ("infer_resnet", "--batch", "1", "--edge", "32", "--blocks", "1", "--dtype", "float32"),
                "classify",
                {"aten::conv2d", "aten::batch_norm", "aten::relu", "aten::linear"},
                {"aten::clone"},
            ),
            (("graph_replay", "--eager", "--layers", "2", "--width", "8"), "replay", {"aten::gelu"}, set()),
        ],
        5,
    ),
)
def test_under_the_harness(start: Start, command: tuple[str, ...], marks: str, ops: set[str], absent: set[str]) -> None:
    run = start([*command, "--active", "2"], env=WITH_GPU)
    assert run.wait() == 0, run.err
    names = run.names()
    assert run.steps() == [2, 3]  # one waits, one warms up, then its own --active
    assert names.count(marks) == 2
    assert ops <= set(names)
    assert not absent & set(names)
    assert command[0] in run.out  # it ran to its end and says so
    assert run.manifest["ended"] == "finished"
    assert run.run_folder.name.startswith(command[0])


def test_reading_the_loss_at_each_step(start: Start) -> None:
    """AdamW reads its own step counts on a CPU; --item adds one more each step."""
    with_item, without = (start(["train_gpt", *SMALL_GPT, "--active", "2", *item]) for item in (["--item"], []))
    assert (with_item.wait(), without.wait()) == (0, 0), with_item.err + without.err
    assert with_item.names().count("aten::item") == without.names().count("aten::item") + 2


def test_the_schedule_asks_the_workload_for_steps(start: Start) -> None:
    run = start(["matmul_add", "--size", "4"], "--wait", "3", "--active", "2", "--repeat", "2")
    assert run.wait() == 0, run.err
    assert [run.steps(0), run.steps(1)] == [[4, 5], [10, 11]]
    cold = start(["matmul_add", "--size", "4"], "--wait", "0", "--warmup", "0")
    assert cold.wait() == 0
    assert cold.steps() == [0, 1, 2]


def test_a_backend_that_does_not_run_here(start: Start) -> None:
    run = start(["attention", "--backend", "cudnn", "--device", "cpu"])
    assert run.wait() == 1
    assert "the cudnn backend does not run bfloat16 on cpu" in run.err
    assert "Traceback" not in run.err


SMALL_GENERATE = ("--layers", "1", "--width", "16", "--heads", "2", "--prompt", "8", "--batch", "2", "--tokens", "2")


@pytest.mark.parametrize(("bias", "copies"), [("full", True), ("row", False)])
def test_the_bias_of_matmul_add(start: Start, bias: str, copies: bool) -> None:
    """A bias of two dimensions is what addmm copies; the rank is recorded with the shapes."""
    words = ["matmul_add", "--size", "8", "--bias", bias, "--op", "addmm", "--active", "1", "--device", "cpu"]
    run = start(words, "--record-shapes")
    assert run.wait() == 0, run.err
    (addmm,) = (event for event in run.trace()["traceEvents"] if event["name"] == "aten::addmm")
    assert addmm["args"]["Input Dims"][0] == ([8, 8] if copies else [8])


def test_generate_records_a_prefill_and_then_tokens(start: Start) -> None:
    run = start(["generate", *SMALL_GENERATE, "--dtype", "float32", "--active", "4"], env=WITH_GPU)
    assert run.wait() == 0, run.err
    steps = [name for name in run.names() if name.startswith("step[")]
    assert steps == ["step[PREFILL bs=2 toks=16]", *["step[DECODE bs=2]"] * 3]
    assert [(said.kind, said.batch) for name in steps if (said := parse_step_name(name))] == [
        (StepKind.PREFILL, 2),
        *[(StepKind.DECODE, 2)] * 3,
    ]
    assert "aten::index_copy_" in run.names()
    assert " tokens/s, " in run.out


@pytest.mark.torch
@pytest.mark.parametrize("mode", keep_some(["eager", "compile"], 1))
def test_generate_chooses_the_same_tokens_as_without_a_cache(mode: str) -> None:
    """The cache gives what the whole text gives; compiled code runs without a compiler."""
    torch = pytest.importorskip("torch")
    generate = importlib.import_module("torchprof_runs.workloads.generate")
    torch.manual_seed(0)
    model = generate.Decoder(2, 16, 2, 2, 24).double()
    prompts = torch.randint(generate.VOCABULARY_SIZE, (2, 8))
    with torch.no_grad():
        whole = prompts.clone()
        for _ in range(6):  # without a cache: each token from the whole text
            chosen = model(whole, torch.arange(whole.shape[1]))
            whole = torch.cat((whole, chosen), dim=1)
        generator = generate.Generator(model, prompts, "eager")
        if mode == "compile":
            generator._forward = torch.compile(model, dynamic=False, backend="eager")
        generator.prefill()
        tokens = [generator.tokens.clone()]
        for _ in range(5):
            generator.decode()
            tokens.append(generator.tokens.clone())
    assert torch.equal(torch.cat(tokens, dim=1), whole[:, 8:])


@pytest.mark.parametrize("name", [("graph_replay",), ("streams",), ("generate", "--mode", "graph")], ids=" ".join)
def test_a_workload_that_needs_a_gpu_says_so(start: Start, name: tuple[str, ...]) -> None:
    run = start(name)
    assert run.wait() == 1
    assert "torch sees none here" in run.err
    assert "Traceback" not in run.err


@pytest.mark.long
@pytest.mark.slow
def test_by_itself() -> None:
    skip_without("torch")
    command = ["-m", "torchprof_runs.workloads.matmul_add", "--size", "8", "--active", "1", "--device", "cpu"]
    process = subprocess.run(
        [sys.executable, *command], cwd=ROOT / "profiler_runs", capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.startswith("matmul_add (8, 8) bfloat16 on cpu")


@pytest.mark.long
def test_the_printed_time_is_that_of_a_usual_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither the cold first step counts, nor the profiler's start and stop between steps."""
    skip_without("torch")
    matmul_add = importlib.import_module("torchprof_runs.workloads.matmul_add")
    steps = [(0.0, 0.9), (1.0, 1.000080), (3.0, 3.000073), (3.1, 3.100070), (9.0, 9.000072)]  # s
    times = iter([time for step in steps for time in step])
    monkeypatch.setattr(matmul_add, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    monkeypatch.setattr(sys, "argv", ["matmul_add", "--size", "8", "--device", "cpu"])
    matmul_add.main()
    assert ": 73 µs of CPU a step (median), " in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_a_beginner_can_read_it(name: str) -> None:
    """One file, torch and the standard library alone, a docstring that says what to expect, one function `step`."""
    tree = ast.parse((FOLDER / f"{name}.py").read_text())
    imported = {
        (alias.name if isinstance(node, ast.Import) else node.module or ".").split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    assert imported - {"torch"} <= set(sys.stdlib_module_names)
    assert "What to expect in the trace" in (ast.get_docstring(tree) or "")
    assert [node.name for node in tree.body if isinstance(node, ast.FunctionDef)].count("step") == 1


def test_every_sample_is_a_workload() -> None:
    assert {recording.command.split()[0] for recording in RECORDINGS} == set(NAMES)
    assert len({recording.name for recording in RECORDINGS}) == len(RECORDINGS)


@pytest.mark.long
@pytest.mark.slow
def test_recording_a_sample(tmp_path: Path) -> None:
    skip_without("torch")
    process = subprocess.run(
        [sys.executable, "-m", "tools.record_samples", "-o", str(tmp_path), "matmul_add_64_cold_eager"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert {path.name for path in tmp_path.iterdir()} == {
        f"matmul_add_64_cold_eager.{suffix}" for suffix in ("pt.trace.json.gz", "table.txt", "key_averages.json")
    }
    assert "matmul_add --size 64" in process.stdout
