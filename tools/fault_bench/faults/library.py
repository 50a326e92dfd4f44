"""Algorithms written out where the library has one kernel or one call."""

# mypy: no-warn-return-any, allow-untyped-calls

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the usual name

from tools.fault_bench.loops import Cell, Step, infer, train


def written_attention(cell: Cell) -> Step:
    heads, length, depth = 8, cell.choose(2048, 16), 64
    q, k, v = (cell.random(cell.count(2), heads, length, depth, dtype=torch.bfloat16) for _ in range(3))

    def through(x: Tensor) -> Tensor:
        if cell.faulty:
            y = torch.softmax(q @ k.transpose(-1, -2) / depth**0.5, -1).to(v.dtype) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v)
        return x + y.mean().to(x.dtype)

    return train(cell, through)


def written_recurrence(cell: Cell) -> Step:
    width, length = cell.choose(128, 8), cell.count(32, 4)
    inputs = cell.random(length, 8, width)
    lstm = nn.LSTM(width, width).to(cell.device)
    w_input, w_hidden, b_input, b_hidden = lstm.parameters()

    def loop() -> Tensor:
        h, c = inputs.new_zeros(8, width), inputs.new_zeros(8, width)
        outputs = []
        for x in inputs:
            i, f, g, o = (F.linear(x, w_input, b_input) + F.linear(h, w_hidden, b_hidden)).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs)

    return train(cell, lambda x: x + (loop() if cell.faulty else lstm(inputs)[0]).mean().to(x.dtype))


def written_cross_entropy(cell: Cell) -> Step:
    classes = cell.choose(8192, 256)
    weight = cell.random(classes, cell.task.head.out_features)

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        wide = F.linear(logits.flatten(0, 1)[: cell.count(2048, 16)], weight).float()
        targets = labels.flatten()[: len(wide)]
        if not cell.faulty:
            return F.cross_entropy(wide, targets)
        shifted = wide - wide.amax(-1, keepdim=True)
        logs = shifted - shifted.exp().sum(-1, keepdim=True).log()
        return -(logs * F.one_hot(targets, classes).float()).sum(-1).mean()

    return train(cell, loss=loss)


def written_layer_norm(cell: Cell) -> Step:
    width = cell.task.width

    def norm(x: Tensor) -> Tensor:
        if not cell.faulty:
            return F.layer_norm(x, (width,))
        mean = x.mean(-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt(variance + 1e-5)

    def through(x: Tensor) -> Tensor:
        x = x.float()
        for _ in range(cell.count(12)):
            x = norm(x)
        return x

    return train(cell, through)


def written_gelu(cell: Cell) -> Step:
    """Apply feed-forward layers to the features, with the activation of GPT-2 between their two products."""
    width = cell.task.width
    shapes = [(width, 4 * width), (4 * width, width)] * cell.count(4)
    weights = [cell.random(*shape) / shape[0] ** 0.5 for shape in shapes]

    def gelu(x: Tensor) -> Tensor:
        if not cell.faulty:
            return F.gelu(x, approximate="tanh")
        return 0.5 * x * (1.0 + torch.tanh(0.79788456 * (x + 0.044715 * torch.pow(x, 3.0))))

    def through(x: Tensor) -> Tensor:
        for up, down in zip(weights[::2], weights[1::2], strict=True):
            x = x + (gelu(x @ up) @ down).to(x.dtype)
        return x

    return train(cell, through)


def written_clipping(cell: Cell) -> Step:
    def clip(_: Any) -> None:
        parameters = list(cell.task.parameters())
        if not cell.faulty:
            nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
            return
        gradients = [p.grad for p in parameters if p.grad is not None]
        norm = torch.zeros((), device=cell.device)
        for gradient in gradients:
            norm = norm + gradient.pow(2).sum()
        for gradient in gradients:
            gradient.mul_(torch.clamp(1.0 / (norm.sqrt() + 1e-6), max=1.0))

    return train(cell, clip=clip)


def written_average(cell: Cell) -> Step:
    weights = [p.detach() for p in cell.task.parameters()]
    averages = [weight.clone() for weight in weights]

    def finish(_: Any) -> None:
        for _ in range(cell.count(1, 1)):
            if cell.faulty:
                for average, weight in zip(averages, weights, strict=True):
                    average.copy_(0.999 * average + 0.001 * weight)
            else:
                torch._foreach_lerp_(averages, weights, 0.001)

    return train(cell, finish=finish)


def written_convolution(cell: Cell) -> Step:
    channels, length = cell.choose(128, 4), cell.choose(4096, 32)
    inputs = cell.random(cell.count(8), channels, length)
    weight = cell.random(channels, channels, 9) / (9 * channels) ** 0.5

    def through(x: Tensor) -> Tensor:
        if cell.faulty:
            patches = F.pad(inputs, (4, 4)).unfold(2, 9, 1).permute(0, 2, 1, 3).flatten(2)
            y = F.linear(patches, weight.flatten(1)).transpose(1, 2)
        else:
            y = F.conv1d(inputs, weight, padding=4)
        return x + y.mean().to(x.dtype)

    return train(cell, through)


def written_cumsum(cell: Cell) -> Step:
    values = cell.random(cell.count(128, 4), 64)

    def through(x: Tensor) -> Tensor:
        if cell.faulty:
            total, rows = torch.zeros_like(values[0]), []
            for row in values:
                total = total + row
                rows.append(total)
            sums = torch.stack(rows)
        else:
            sums = values.cumsum(0)
        return x + sums.mean().to(x.dtype)

    return train(cell, through)


def one_hot_lookup(cell: Cell) -> Step:
    rows = cell.choose(8192, 64)
    table = cell.random(rows, 256, dtype=torch.bfloat16)
    numbers = torch.randint(rows, (cell.count(8192, 16),), device=cell.device)

    def through(x: Tensor) -> Tensor:
        found = F.one_hot(numbers, rows).to(table.dtype) @ table if cell.faulty else F.embedding(numbers, table)
        return x + found.mean().to(x.dtype)

    return infer(cell, through)


def written_distances(cell: Cell) -> Step:
    rows = cell.count(512, 8)
    a, b = cell.random(rows, 128), cell.random(2048 if cell.on_gpu else 16, 128)

    def through(x: Tensor) -> Tensor:
        distances = ((a[:, None] - b[None]) ** 2).sum(-1).sqrt() if cell.faulty else torch.cdist(a, b)
        return x + distances.amin().to(x.dtype)

    return infer(cell, through)
