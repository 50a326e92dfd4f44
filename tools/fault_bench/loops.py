"""The loops in which faults are put: training and inference, over any model of the bench."""

# mypy: no-warn-return-any, allow-untyped-calls

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the usual name
from torch.profiler import record_function

from .models import BUILDERS, Size, Task

Step = Callable[[int], object]


@dataclass
class Cell:
    """One program: a model, its device, whether it is faulty, and how much of the fault's work it does.

    `amount` scales the work that `count` gives, alike for both variants; `closing` undoes what a fault has set.
    """

    model: str
    size: Size
    device: str
    faulty: bool
    amount: float = 1.0
    closing: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith("cuda")

    @cached_property
    def task(self) -> Task:
        """The model on the device; the same weights for both variants."""
        torch.manual_seed(0)
        return BUILDERS[self.model](self.size).to(self.device).train()

    @cached_property
    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.task.parameters(), lr=1e-4, fused=self.on_gpu)

    def count(self, usual: int, tiny: int = 2) -> int:
        """Scale a number of repetitions by the amount."""
        return max(1, round((tiny if self.size.name == "tiny" else usual) * self.amount))

    def choose(self, usual: int, tiny: int) -> int:
        """Choose an extent that the amount does not scale."""
        return tiny if self.size.name == "tiny" else usual

    def precision(self) -> contextlib.AbstractContextManager[Any]:
        """Compute matmuls in bf16 on a GPU."""
        return torch.autocast("cuda", torch.bfloat16) if self.on_gpu else contextlib.nullcontext()

    def random(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(*shape, device=self.device, dtype=dtype)

    def synchronize(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()


def compute_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Compute the mean cross entropy of logits (batch, length, classes)."""
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def keep(features: Tensor) -> Tensor:
    return features


def ignore(_: Any) -> None:
    return None


def train(
    cell: Cell,
    through: Callable[[Tensor], Tensor] = keep,
    loss: Callable[[Tensor, Tensor], Tensor] = compute_loss,
    backward: Callable[[Tensor], object] = Tensor.backward,
    clip: Callable[[Any], object] = ignore,
    finish: Callable[[Any], object] = ignore,
) -> Step:
    """Build a training step.

    `through` changes the features (batch, length, width), `loss` compares logits with labels, `backward` computes the
    gradients, `clip` follows it, and `finish` gets the loss after the optimizer.
    """
    task, optimizer = cell.task, cell.optimizer

    def step(_: int) -> None:
        with record_function("forward"), cell.precision():
            value = loss(task.head(through(task.features(task.inputs))), task.labels)
        with record_function("backward"):
            backward(value)
        clip(value)
        with record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        finish(value.detach())

    return step


def infer(
    cell: Cell,
    through: Callable[[Tensor], Tensor] = keep,
    finish: Callable[[Tensor], object] = ignore,
    mode: Callable[[], contextlib.AbstractContextManager[Any]] = torch.inference_mode,
) -> Step:
    """Build an inference step; `finish` gets the logits (batch, length, classes)."""
    task = cell.task.eval()

    def step(_: int) -> None:
        with record_function("inference"), mode(), cell.precision():
            finish(task.head(through(task.features(task.inputs))))

    return step
