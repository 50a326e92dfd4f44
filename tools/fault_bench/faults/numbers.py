"""Faults of number types, constants and transfers."""

# mypy: no-warn-return-any, allow-untyped-calls

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the usual name

from tools.fault_bench.loops import Cell, Step, infer, train


def float64_head(cell: Cell) -> Step:
    width = cell.task.width
    weight = cell.random(width, width) / width**0.5
    dtype = torch.float64 if cell.faulty else torch.float32

    def through(x: Tensor) -> Tensor:
        with torch.autocast(cell.device, enabled=False):
            y = x.to(dtype)
            for _ in range(cell.count(2)):
                y = y + 0.1 * torch.tanh(y @ weight.to(dtype))
        return y.float()

    return train(cell, through)


def float64_promoted(cell: Cell) -> Step:
    """Scale the features by a table that came from numpy as float64, which promotes all that follows."""
    scale = 1 + 0.1 * cell.random(cell.task.width, dtype=torch.float64)
    if not cell.faulty:
        scale = scale.float()

    def through(x: Tensor) -> Tensor:
        y = x * scale
        for _ in range(cell.count(3)):
            y = y + 0.1 * torch.sin(y)
        return y.float()

    return train(cell, through)


def fp32_island(cell: Cell) -> Step:
    width = cell.task.width
    weights = [cell.random(width, width) / width**0.5 for _ in range(cell.count(8))]
    dtype = torch.float32 if cell.faulty else torch.bfloat16
    previous = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    cell.closing.callback(torch.set_float32_matmul_precision, previous)

    def through(x: Tensor) -> Tensor:
        with torch.autocast(cell.device, dtype=torch.bfloat16, enabled=not cell.faulty):
            y = x.to(dtype)
            for weight in weights:
                y = y + 0.1 * (y @ weight).to(dtype)
        return y.float()

    return train(cell, through)


def fp32_attention(cell: Cell) -> Step:
    """Norm queries and keys in float32, as many models do; the faulty program does not cast them back."""
    heads, length, depth = 8, cell.choose(2048, 16), 64
    q, k, v = (cell.random(cell.count(2), heads, length, depth, dtype=torch.bfloat16) for _ in range(3))
    gain = torch.nn.Parameter(torch.ones(depth, device=cell.device))
    dtype = torch.float32 if cell.faulty else torch.bfloat16

    def through(x: Tensor) -> Tensor:
        with torch.autocast(cell.device, enabled=False):
            queries, keys = (F.rms_norm(part.float(), (depth,), gain).to(dtype) for part in (q, k))
            y = F.scaled_dot_product_attention(queries, keys, v.to(dtype))
        return x + y.mean().to(x.dtype)

    return train(cell, through)


def repeated_casts(cell: Cell) -> Step:
    width = cell.task.width
    weights = [cell.random(width, 4 * width) / width**0.5 for _ in range(cell.count(16))]
    if not cell.faulty:
        weights = [weight.to(torch.bfloat16) for weight in weights]

    def through(x: Tensor) -> Tensor:
        y = x[:1].to(torch.bfloat16)
        for weight in weights:
            y = y + 0.1 * F.linear(y @ weight.to(torch.bfloat16), weight.to(torch.bfloat16))
        return x + y.to(x.dtype)

    return infer(cell, through)


def constants_copied(cell: Cell) -> Step:
    table = torch.randn(cell.task.length, cell.task.width)
    kept = table.to(cell.device)

    def through(x: Tensor) -> Tensor:
        for _ in range(cell.count(8)):
            # copied on the CPU as well, where `to` would copy nothing
            x = x + (table.to(cell.device, copy=True) if cell.faulty else kept).to(x.dtype)
        return x

    return train(cell, through)


def masks_remade(cell: Cell) -> Step:
    length = cell.choose(4096, 64)
    return _use_constant(cell, lambda: torch.full((length, length), -1e9, device=cell.device).triu(1))


def positions_remade(cell: Cell) -> Step:
    length, width = cell.choose(8192, 64), cell.choose(1024, 16)

    def make() -> Tensor:
        rates = torch.exp(torch.arange(0, width, 2, device=cell.device) * (-9.21 / width))
        angles = torch.arange(length, device=cell.device)[:, None] * rates
        return torch.cat([angles.sin(), angles.cos()], -1)

    return _use_constant(cell, make)


def _use_constant(cell: Cell, make: Callable[[], Tensor]) -> Step:
    """Use a tensor that is the same each time: made again at each use in the faulty program, once in the mended one."""
    kept = make()

    def through(x: Tensor) -> Tensor:
        for _ in range(cell.count(16)):
            constant = make() if cell.faulty else kept
            x = x + constant[:1, :1].amax().to(x.dtype)
        return x

    return train(cell, through)


def tensor_from_list(cell: Cell) -> Step:
    values = [0.001 * number for number in range(cell.count(50_000, 500))]
    kept = torch.tensor(values, device=cell.device)

    def through(x: Tensor) -> Tensor:
        return x + (torch.tensor(values, device=cell.device) if cell.faulty else kept).mean().to(x.dtype)

    return train(cell, through)


def results_copied_back(cell: Cell) -> Step:
    def finish(logits: Tensor) -> None:
        answers = [part.argmax(-1) for part in logits.tensor_split(cell.count(16), 1)]
        torch.cat(answers, 1).cpu()

    def copy_parts(logits: Tensor) -> None:
        for part in logits.tensor_split(cell.count(16), 1):
            part.argmax(-1).cpu()

    return infer(cell, finish=copy_parts if cell.faulty else finish)


def small_copies(cell: Cell) -> Step:
    fields = [torch.randn(64) for _ in range(cell.count(256, 8))]
    stacked = torch.stack(fields)

    def through(x: Tensor) -> Tensor:
        if cell.faulty:
            values = torch.stack([row.to(cell.device, copy=True) for row in fields])
        else:
            values = stacked.to(cell.device, copy=True)
        return x + values.mean().to(x.dtype)

    return train(cell, through)
