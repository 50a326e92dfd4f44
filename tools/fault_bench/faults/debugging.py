"""Faults of debug modes, compiled code, and Python between the steps."""

# mypy: no-warn-return-any, allow-untyped-calls

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tools.fault_bench.loops import Cell, Step, infer, train


def anomaly_mode(cell: Cell) -> Step:
    """Set the mode in each step, since both variants run in turn in one process."""
    step = train(cell)

    def run(index: int) -> None:
        with torch.autograd.set_detect_anomaly(cell.faulty):
            step(index)

    return run


def nan_checks(cell: Cell) -> Step:
    def check(_: Any) -> None:
        gradients = [p.grad for p in cell.task.parameters() if p.grad is not None]
        for _ in range(cell.count(1, 1)):
            if cell.faulty:
                if any(bool(gradient.isnan().any()) for gradient in gradients):
                    raise ValueError("NaN")
            else:
                torch.stack(torch._foreach_norm(gradients))

    return train(cell, clip=check)


def validated_distributions(cell: Cell) -> Step:
    """Compute log-probabilities as a policy does; each check of an argument is read on the CPU."""
    actions = cell.random(256, 8)

    def through(x: Tensor) -> Tensor:
        mean = x.flatten()[:8].float()
        for _ in range(cell.count(8)):
            policy = torch.distributions.Normal(mean, 1 + mean.abs(), validate_args=cell.faulty)
            mean = mean + 0.01 * policy.log_prob(actions).mean(0)
        return x + mean.mean().to(x.dtype)

    return train(cell, through)


def sync_timers(cell: Cell) -> Step:
    if cell.faulty:
        for module in cell.task.modules():
            if not list(module.children()):
                module.register_forward_hook(lambda *_: cell.synchronize())
    return infer(cell)


def flop_counter(cell: Cell) -> Step:
    """Count the operations of each step, as logs of the utilization do; each op is called through Python then."""
    step = train(cell)

    def run(index: int) -> None:
        with FlopCounterMode(display=False) if cell.faulty else contextlib.nullcontext():
            step(index)

    return run


def deterministic_mode(cell: Cell) -> Step:
    """Set the mode in each step, as above; what it slows down is adding rows by index."""
    rows, width = cell.choose(65536, 64), cell.choose(256, 8)
    values = cell.random(rows, width)
    index = torch.randint(rows // 4, (rows,), device=cell.device)

    def through(x: Tensor) -> Tensor:
        total = values.new_zeros(rows // 4, width)
        for _ in range(cell.count(4)):
            total.index_add_(0, index, values)
        return x + total.mean().to(x.dtype)

    step = infer(cell, through)

    def run(number: int) -> None:
        torch.use_deterministic_algorithms(cell.faulty, warn_only=True)
        try:
            step(number)
        finally:
            torch.use_deterministic_algorithms(False)

    return run


def gradient_histograms(cell: Cell) -> Step:
    def count(_: Any) -> None:
        for parameter in list(cell.task.parameters())[: cell.count(32)] if cell.faulty else ():
            if parameter.grad is not None:
                torch.histc(parameter.grad.detach().flatten()[:65536].float().cpu(), 64)

    return train(cell, clip=count)


def activation_statistics(cell: Cell) -> Step:
    def look(_: nn.Module, __: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            values = output.detach().float()
            statistics.append(torch.stack([values.mean(), values.std(), values.amax(), values.amin()]))

    statistics: list[Tensor] = []
    if cell.faulty:
        for module in cell.task.modules():
            if not list(module.children()):
                module.register_forward_hook(look)
    return train(cell, finish=lambda _: statistics.clear())


def _compile(cell: Cell, function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Compile with Inductor on a GPU, without code generation on a CPU."""
    return torch.compile(function, backend="inductor" if cell.on_gpu else "eager", dynamic=False)


def _link(x: Tensor) -> Tensor:
    return torch.tanh(x * 1.01 + 0.1) + 0.5 * x


def _broken_chain(x: Tensor) -> Tensor:
    """Apply four links with breaks, without a loop: a frame that breaks in a loop is not compiled at all."""
    x = _link(x)
    torch._dynamo.graph_break()
    x = _link(x)
    torch._dynamo.graph_break()
    x = _link(x)
    torch._dynamo.graph_break()
    return _link(x)


def _whole_chain(x: Tensor) -> Tensor:
    return _link(_link(_link(_link(x))))


def graph_breaks(cell: Cell) -> Step:
    values = cell.random(cell.count(1 << 24, 1 << 8))
    chain = _compile(cell, _broken_chain if cell.faulty else _whole_chain)
    return infer(cell, lambda x: x + chain(values)[0].to(x.dtype), mode=torch.no_grad)


def _branch(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x * 0.9
    return x * 1.1


def _select(x: Tensor) -> Tensor:
    return torch.where(x.sum() > 0, x * 0.9, x * 1.1)


def _branching_chain(x: Tensor) -> Tensor:
    x = _branch(x)
    x = _branch(x)
    x = _branch(x)
    return _branch(x)


def _selecting_chain(x: Tensor) -> Tensor:
    return _select(_select(_select(_select(x))))


def data_dependent_branch(cell: Cell) -> Step:
    chain = _compile(cell, _branching_chain if cell.faulty else _selecting_chain)

    def through(x: Tensor) -> Tensor:
        for _ in range(cell.count(2)):
            x = chain(x)
        return x

    return infer(cell, through, mode=torch.no_grad)


def python_metrics(cell: Cell) -> Step:
    count = cell.count(60_000, 500)
    truth = [number % 7 for number in range(count)]
    guesses = [number % 5 for number in range(count)]
    a, b = torch.tensor(truth), torch.tensor(guesses)

    def score(_: Any) -> None:
        if cell.faulty:
            matrix = [[0] * 7 for _ in range(7)]
            for left, right in zip(truth, guesses, strict=True):
                matrix[left][right] += 1
        else:
            torch.bincount(a * 7 + b, minlength=49)

    return train(cell, finish=score)


def background_thread(cell: Cell) -> Step:
    """Start the thread at the beginning of each step and end it with the step; it does a bounded piece of work."""
    step = train(cell)
    rounds = cell.count(100_000, 1_000)

    def work() -> int:
        return sum(number * number % 7 for number in range(rounds))

    def run(index: int) -> None:
        thread = threading.Thread(target=work, name="statistics")
        if cell.faulty:
            thread.start()
        step(index)
        if cell.faulty:
            thread.join()

    return run


def subprocess_each_step(cell: Cell) -> Step:
    """Start a program in each step and wait for it, as monitors do that ask a command for the GPU's memory."""

    def watch(_: Any) -> None:
        if cell.faulty:
            for _ in range(cell.count(2, 1)):
                subprocess.run(["true"], check=True)

    return train(cell, finish=watch)


def garbage_collected(cell: Cell) -> Step:
    """Collect garbage after each step, as against leaks; lists stand for the objects of a large program."""
    if not cell.faulty:
        return train(cell)
    gc.collect()
    gc.freeze()  # so that the amount alone says how many objects are visited
    cell.closing.callback(gc.unfreeze)
    kept = [[number] for number in range(cell.count(200_000, 1_000))]

    def collect(_: Any) -> None:
        if kept:
            gc.collect()

    return train(cell, finish=collect)


def checkpoint_each_step(cell: Cell) -> Step:
    folder = cell.closing.enter_context(tempfile.TemporaryDirectory())

    def save(_: Any) -> None:
        if cell.faulty:
            weights = list(cell.task.state_dict().items())[: cell.count(16)]
            torch.save(dict(weights), os.path.join(folder, "checkpoint.pt"))

    return train(cell, finish=save)


def log_flushed(cell: Cell) -> Step:
    folder = cell.closing.enter_context(tempfile.TemporaryDirectory())
    path = os.path.join(folder, "log.jsonl")
    file = cell.closing.enter_context(open(path, "w", encoding="utf-8"))  # noqa: SIM115 - closed with the cell

    def log(_: Any) -> None:
        for number in range(cell.count(200, 10)):
            file.write(json.dumps({"number": number, "value": number / 7}) + "\n")
            if cell.faulty:
                file.flush()
                os.fsync(file.fileno())

    return train(cell, finish=log)
