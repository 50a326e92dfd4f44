"""Faults of memory and of gradients that nothing needs."""

# mypy: no-warn-return-any, allow-untyped-calls

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the usual name
from torch.utils.checkpoint import checkpoint

from tools.fault_bench.loops import Cell, Step, compute_loss, train
from tools.fault_bench.models import BUILDERS


def growing_cat(cell: Cell) -> Step:
    rows, width = cell.choose(1024, 4), cell.choose(512, 8)
    block = cell.random(rows, width)

    def through(x: Tensor) -> Tensor:
        number = cell.count(48, 4)
        if cell.faulty:
            kept = block[:0]
            for _ in range(number):
                kept = torch.cat([kept, block * 0.5])
        else:
            kept = torch.cat([block * 0.5 for _ in range(number)])
        return x + kept[-1].mean().to(x.dtype)

    return train(cell, through)


def memory_returned(cell: Cell) -> Step:
    def through(x: Tensor) -> Tensor:
        for _ in range(cell.count(2)):
            x = x * 1.0
            if cell.faulty and cell.on_gpu:
                torch.cuda.empty_cache()
        return x

    return train(cell, through)


def gradients_in_evaluation(cell: Cell) -> Step:
    """The faulty evaluation shares its step with the training, backward included."""
    task = cell.task

    def run(_: int) -> None:
        with torch.set_grad_enabled(cell.faulty), cell.precision():
            loss = compute_loss(task(task.inputs), task.labels)
        if cell.faulty:
            loss.backward()
            task.zero_grad()

    return run


def frozen_backbone(cell: Cell) -> Step:
    task = cell.task
    task.model.requires_grad_(cell.faulty)
    cell.optimizer = torch.optim.AdamW(task.head.parameters(), lr=1e-4, fused=cell.on_gpu)
    return train(cell, finish=lambda _: task.model.zero_grad())


def teacher_gradients(cell: Cell) -> Step:
    """Train with the answers of a second model, which is not trained itself."""
    task = cell.task
    teacher = BUILDERS[cell.model](cell.size).to(cell.device).train()

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        with torch.set_grad_enabled(cell.faulty):
            answers = teacher(task.inputs)
        return compute_loss(logits, labels) + F.mse_loss(logits.float(), answers.float())

    return train(cell, loss=loss, finish=lambda _: teacher.zero_grad())


def two_backwards(cell: Cell) -> Step:
    def backward(loss: Tensor) -> None:
        if cell.faulty:
            (0.7 * loss).backward(retain_graph=True)
            (0.3 * loss).backward()
        else:
            (0.7 * loss + 0.3 * loss).backward()

    return train(cell, backward=backward)


def needless_clones(cell: Cell) -> Step:
    def through(x: Tensor) -> Tensor:
        for _ in range(cell.count(24)):
            x = x.clone() if cell.faulty else x
        return x

    return train(cell, through)


def needless_checkpointing(cell: Cell) -> Step:
    task = cell.task
    plain = task.features

    def features(inputs: Tensor) -> Tensor:
        return checkpoint(plain, inputs, use_reentrant=False)

    if cell.faulty:
        task.features = features  # type: ignore[method-assign]
    return train(cell)


def activations_offloaded(cell: Cell) -> Step:
    """Some layers on the features keep what they need for the backward pass in host memory."""
    weight = torch.nn.Parameter(cell.random(cell.task.width) * 0.1)

    def through(x: Tensor) -> Tensor:
        for _ in range(cell.count(2)):
            if cell.faulty:
                with torch.autograd.graph.save_on_cpu():
                    x = x + torch.tanh(x * weight)
            else:
                x = x + torch.tanh(x * weight)
        return x

    return train(cell, through)
