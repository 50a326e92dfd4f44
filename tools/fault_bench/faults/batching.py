"""Faults of one item at a time, and of the shapes that kernels get."""

# mypy: no-warn-return-any, allow-untyped-calls, allow-subclassing-any, allow-untyped-decorators

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the usual name

from tools.fault_bench.loops import Cell, Step, compute_loss, infer, train


def one_item_training(cell: Cell) -> Step:
    """Train at most four samples, one by one or as one batch; the gradients are the same."""
    task, optimizer = cell.task, cell.optimizer
    number = min(4, len(task.inputs))
    size = 1 if cell.faulty else number

    def step(_: int) -> None:
        for first in range(0, number, size):
            part = slice(first, first + size)
            with cell.precision():
                loss = compute_loss(task(task.inputs[part]), task.labels[part]) * size / number
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def one_item_evaluation(cell: Cell) -> Step:
    task = cell.task.eval()
    number = min(4, len(task.inputs))
    size = 1 if cell.faulty else number

    def step(_: int) -> None:
        with torch.inference_mode(), cell.precision():
            for first in range(0, number, size):
                task(task.inputs[first : first + size]).argmax(-1)

    return step


def embedding_tables(cell: Cell) -> Step:
    tables, rows, width = cell.count(48, 4), 1000, 16
    weight = torch.nn.Parameter(cell.random(tables * rows, width))
    numbers = torch.randint(rows, (tables, 64), device=cell.device)
    offsets = rows * torch.arange(tables, device=cell.device)[:, None]

    def through(x: Tensor) -> Tensor:
        if cell.faulty:
            parts = weight.view(tables, rows, width).unbind()
            found = torch.stack([F.embedding(row, part) for row, part in zip(numbers, parts, strict=True)])
        else:
            found = F.embedding(numbers + offsets, weight)
        return x + found.mean().to(x.dtype)

    return infer(cell, through)


def small_matmuls(cell: Cell) -> Step:
    groups = cell.count(128, 4)
    a, b = cell.random(groups, 64, 64), cell.random(groups, 64, 64)

    def through(x: Tensor) -> Tensor:
        y = torch.stack([left @ right for left, right in zip(a, b, strict=True)]) if cell.faulty else torch.bmm(a, b)
        return x + y.mean().to(x.dtype)

    return train(cell, through)


def attention_per_head(cell: Cell) -> Step:
    heads = cell.count(32, 4)
    q, k, v = (cell.random(2, heads, 64, 32, dtype=torch.bfloat16) for _ in range(3))

    def through(x: Tensor) -> Tensor:
        if cell.faulty:
            parts = zip(q.split(1, 1), k.split(1, 1), v.split(1, 1), strict=True)
            y = torch.cat([F.scaled_dot_product_attention(*part) for part in parts], 1)
        else:
            y = F.scaled_dot_product_attention(q, k, v)
        return x + y.mean().to(x.dtype)

    return infer(cell, through)


class Lion(torch.optim.Optimizer):
    """The optimizer Lion, which torch lacks: over one parameter after the other, or over all at once."""

    def __init__(self, parameters: Iterable[Tensor], foreach: bool, rounds: int) -> None:
        super().__init__(parameters, {"foreach": foreach, "rounds": rounds})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            for weight in weights:
                if not self.state[weight]:
                    self.state[weight]["average"] = torch.zeros_like(weight)
            gradients, averages = [w.grad for w in weights], [self.state[w]["average"] for w in weights]
            update = self._update_all if group["foreach"] else self._update_each
            for _ in range(group["rounds"]):
                update(weights, gradients, averages)

    def _update_each(self, weights: list[Tensor], gradients: list[Tensor], averages: list[Tensor]) -> None:
        for weight, gradient, average in zip(weights, gradients, averages, strict=True):
            change = average.lerp(gradient, 0.1).sign_()
            weight.mul_(1 - 1e-6).add_(change, alpha=-1e-4)
            average.lerp_(gradient, 0.01)

    def _update_all(self, weights: list[Tensor], gradients: list[Tensor], averages: list[Tensor]) -> None:
        changes = torch._foreach_lerp(averages, gradients, 0.1)
        torch._foreach_sign_(changes)
        torch._foreach_mul_(weights, 1 - 1e-6)
        torch._foreach_add_(weights, changes, alpha=-1e-4)
        torch._foreach_lerp_(averages, gradients, 0.01)


def optimizer_per_parameter(cell: Cell) -> Step:
    cell.optimizer = Lion(cell.task.parameters(), foreach=not cell.faulty, rounds=cell.count(1, 1))
    return train(cell)


def augmentation_per_item(cell: Cell) -> Step:
    images = cell.random(cell.count(32, 4), 3, 32, 32)
    gain = cell.random(len(images))

    def augment(image: Tensor, scale: Tensor) -> Tensor:
        return (image.flip(-1) * (1 + 0.1 * scale)).clamp(-2, 2).roll(2, -1)

    def through(x: Tensor) -> Tensor:
        if cell.faulty:
            done = torch.stack([augment(image, scale) for image, scale in zip(images, gain, strict=True)])
        else:
            done = augment(images, gain[:, None, None, None])
        return x + done.mean().to(x.dtype)

    return train(cell, through)


def metrics_per_class(cell: Cell) -> Step:
    classes = cell.count(64, 4)

    def finish(logits: Tensor) -> None:
        guesses = logits.argmax(-1).flatten() % classes
        if cell.faulty:
            for number in range(classes):
                (guesses == number).sum().item()
        else:
            torch.bincount(guesses, minlength=classes).tolist()

    return infer(cell, finish=finish)


def class_means_by_mask(cell: Cell) -> Step:
    classes = cell.count(48, 4)
    values = cell.random(4096, 64)
    labels = torch.arange(4096, device=cell.device) % classes

    def through(x: Tensor) -> Tensor:
        if cell.faulty:
            means = torch.stack([values[labels == number].mean(0) for number in range(classes)])
        else:
            counts = values.new_zeros(classes, 1).index_add_(0, labels, torch.ones_like(values[:, :1]))
            means = values.new_zeros(classes, 64).index_add_(0, labels, values) / counts
        return x + means.mean().to(x.dtype)

    return infer(cell, through)


def few_blocks(cell: Cell) -> Step:
    values = cell.random(4, cell.count(1 << 20, 1 << 10) // 256 * 256 or 256)

    def through(x: Tensor) -> Tensor:
        if cell.faulty:
            y = torch.softmax(values, -1)
        else:
            pieces = values.view(4, 256, -1)
            top = pieces.amax(-1).amax(-1)[:, None, None]
            powers = torch.exp(pieces - top)
            y = powers / powers.sum(-1).sum(-1)[:, None, None]
        return x + y.mean().to(x.dtype)

    return infer(cell, through)


def colliding_atomics(cell: Cell) -> Step:
    rows, targets = cell.count(1 << 17, 256), 8
    values = cell.random(rows, 64)
    index = torch.randint(targets, (rows,), device=cell.device)

    def through(x: Tensor) -> Tensor:
        if cell.faulty:
            total = values.new_zeros(targets, 64).index_add_(0, index, values)
        else:
            total = F.one_hot(index, targets).to(values.dtype).t() @ values
        return x + total.mean().to(x.dtype)

    return infer(cell, through)


def indexed_rows(cell: Cell) -> Step:
    """Look up trained rows of a short table, as of token types; an index's gradient adds equal rows in series."""
    rows, width = 8, cell.choose(256, 8)
    table = torch.nn.Parameter(cell.random(rows, width))
    numbers = torch.randint(rows, (cell.count(1 << 16, 64),), device=cell.device)

    def through(x: Tensor) -> Tensor:
        found = table[numbers] if cell.faulty else F.embedding(numbers, table)
        return x + found.mean().to(x.dtype)

    def finish(_: Tensor) -> None:
        table.grad = None

    return train(cell, through, finish=finish)


def strided_reads(cell: Cell) -> Step:
    side = cell.choose(8192, 64)
    a, b = cell.random(side, side), cell.random(side, side)
    other = b.t() if cell.faulty else b.t().contiguous()

    def through(x: Tensor) -> Tensor:
        y = a
        for _ in range(cell.count(4)):
            y = y + other
        return x + y[0].mean().to(x.dtype)

    return infer(cell, through)


def odd_width(cell: Cell) -> Step:
    width = cell.choose(4096, 32) - (3 if cell.faulty else 0)
    rows = cell.choose(4096, 32)
    a, b = cell.random(rows, width, dtype=torch.bfloat16), cell.random(width, width, dtype=torch.bfloat16) / width**0.5

    def through(x: Tensor) -> Tensor:
        y = a
        for _ in range(cell.count(16)):
            y = y @ b
        return x + y.mean().to(x.dtype)

    return infer(cell, through)


def diagonal_matmul(cell: Cell) -> Step:
    side = cell.choose(4096, 32)
    scale, values = cell.random(side), cell.random(side, side, dtype=torch.bfloat16)

    def through(x: Tensor) -> Tensor:
        y = values
        for _ in range(cell.count(8)):
            y = torch.diag(scale).to(y.dtype) @ y if cell.faulty else scale[:, None].to(y.dtype) * y
        return x + y.mean().to(x.dtype)

    return infer(cell, through)


def sort_for_top_k(cell: Cell) -> Step:
    values = cell.random(cell.count(512, 8), cell.choose(32768, 64))

    def through(x: Tensor) -> Tensor:
        best = values.sort(-1, descending=True).values[:, :8] if cell.faulty else values.topk(8, -1).values
        return x + best.mean().to(x.dtype)

    return infer(cell, through)
