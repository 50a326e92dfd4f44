"""Classification of frames and annotations by who wrote them."""

from __future__ import annotations

import pytest

from torchprof_tui.analysis.dispatch.frame_names import (
    AnnotationOrigin,
    FrameOrigin,
    classify_annotation,
    classify_file,
    parse_frame,
)

USER = (
    "train.py",
    "make_traces.py",
    "moca/library/profiling/profile.py",
    "/home/user/train_gpt.py",
    "/app/xDiT/xfuser/runner.py",
    "/sgl-workspace/sglang/python/sglang/srt/managers/scheduler.py",
    "/home/me/torch/train.py",
    "code/train.py",
    "<ipython-input-3-0123abcd>",
    "/tmp/ipykernel_123/456.py",
    r"C:\Users\me\project\train.py",
)
LIBRARY = (
    "transformers/models/gpt2/modeling_gpt2.py",
    "/opt/conda/lib/python3.11/site-packages/transformers/trainer.py",
    "/usr/local/lib/python3.10/dist-packages/mine/model.py",
    "vllm/v1/engine/core.py",
    "PIL/Image.py",
    "typing_extensions.py",
)
INTERNAL = (
    "torch/nn/modules/module.py",
    "torch/_tensor.py",
    "/opt/conda/lib/python3.11/site-packages/torch/optim/adamw.py",
    "/home/me/src/pytorch/torch/nn/modules/linear.py",
    "/sgl-workspace/triton-custom/python/triton/backends/amd/driver.py",
    "/tmp/torchinductor_me/ab/cabc.py",
    "torchprof_runs/recorder/recording_session.py",
    "typing.py",
    "threading.py",
    "json/encoder.py",
    "multiprocessing/spawn.py",
    "/usr/lib/python3.12/contextlib.py",
    "/opt/conda/lib/python3.11/collections/__init__.py",
    "<frozen importlib._bootstrap>",
    "<string>",
    "<eval_with_key>.5",
)


@pytest.mark.parametrize(
    ("file", "origin"),
    [
        *((file, FrameOrigin.USER) for file in USER),
        *((file, FrameOrigin.LIBRARY) for file in LIBRARY),
        *((file, FrameOrigin.INTERNAL) for file in INTERNAL),
    ],
)
def test_a_file_belongs_to_someone(file: str, origin: FrameOrigin) -> None:
    assert classify_file(file) is origin


def test_the_workloads_of_the_recorder_are_programs() -> None:
    assert classify_file("/x/site-packages/torchprof_runs/workloads/mlp.py") is not FrameOrigin.INTERNAL


def test_a_frame_has_a_file_a_line_and_a_function() -> None:
    frame = parse_frame("/home/me (old)/train(2).py(42): forward")
    assert frame is not None
    assert (frame.file, frame.line, frame.function) == ("/home/me (old)/train(2).py", 42, "forward")
    assert frame.text == "train(2).py(42): forward"
    package = parse_frame("mine/model/__init__.py(7): <lambda>")
    assert package is not None
    assert package.text == "model/__init__.py(7): <lambda>"


@pytest.mark.parametrize(
    "name", ["<built-in function len>", "nn.Module: GPT_0", "aten::mm", "train.py: forward", "train.py(x): f", ""]
)
def test_other_names_are_no_frames(name: str) -> None:
    assert parse_frame(name) is None


@pytest.mark.parametrize(
    ("name", "origin"),
    [
        ("forward", AnnotationOrigin.USER),
        ("## forward:over_arch ##", AnnotationOrigin.USER),
        ("step[DECODE bs=4]", AnnotationOrigin.USER),
        ("Optimizer.step#AdamW.step", AnnotationOrigin.TORCH),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", AnnotationOrigin.TORCH),
        ("nccl:all_reduce", AnnotationOrigin.TORCH),
        ("Torch-Compiled Region: 0/0", AnnotationOrigin.INTERNAL),
        ("## Call CompiledFxGraph fp0 ##", AnnotationOrigin.INTERNAL),
        ("_compile.compile_inner (dynamo_timed)", AnnotationOrigin.INTERNAL),
    ],
)
def test_an_annotation_belongs_to_someone(name: str, origin: AnnotationOrigin) -> None:
    assert classify_annotation(name) is origin
