"""Patterns of many ops where one would do: algorithms written out, constants made again, samples one by one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from torchprof_tui.analysis.patterns.engine.avoidable_work import (
    add_backward_nodes,
    answer_fault,
    find_ops_around,
    pair_neighbours,
)
from torchprof_tui.analysis.patterns.engine.op_text import OpText, read_inputs, write_op_text
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Remedy, register_fault
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.throughput.op_inputs import OpInputs
from torchprof_tui.trace.core.arrays import I64, is_in, sorted_unique
from torchprof_tui.trace.core.records import record


@record
class Algorithm:
    """An algorithm by the ops that it is written with, as letters of `op_text`.

    `kept`: letters of the ops that the library's op still does the work of; `keeps_backward`: and of their backward
    pass. `fits`: judges the inputs of the first and the last op of a match, where names alone do not prove it; None
    where they do. `is_whole`: ops without a letter between the first and the last one belong to it: they copy what
    views cannot show. `needs`: letters of which each match has one, "" where all are common.
    """

    name: str
    expression: str
    headline: str
    remedy: Remedy
    kept: str = ""
    keeps_backward: bool = True
    fits: Callable[[list[OpInputs | None]], bool] | None = None
    is_whole: bool = False
    needs: str = ""


def _is_broadcast_difference(inputs: list[OpInputs | None]) -> bool:
    """Return whether a difference takes (n, 1, d) from (1, m, d), or the reverse."""
    first = inputs[0].tensors(2) if inputs[0] is not None else []
    if len(first) != 2 or len(first[0].sizes) < 3 or len(first[0].sizes) != len(first[1].sizes):
        return False
    pairs = [{first[0].sizes[axis], first[1].sizes[axis]} for axis in (-3, -2)]
    return all(1 in pair and len(pair) == 2 for pair in pairs)


def _uses_few(inputs: list[OpInputs | None]) -> bool:
    """Return whether what is read after a sort is a small part of what was sorted, along its last axis."""
    found = [each.tensor(0) if each is not None else None for each in inputs]
    if len(found) < 2 or found[0] is None or found[1] is None or not found[0].sizes or not found[1].elements:
        return False
    return found[1].elements * _FEW_OF_SORTED <= found[0].elements


def _selects_rows(inputs: list[OpInputs | None]) -> bool:
    """Return whether the one-hot rows of numbers are the left factor, as they were made: transposed they add up."""
    numbers, rows = (each.tensor(0) if each is not None else None for each in inputs)
    if numbers is None or rows is None or inputs[1] is None or rows.sizes[:-1] != numbers.sizes:
        return False
    strides = inputs[1].strides[0] if inputs[1].strides else None
    return not isinstance(strides, list) or strides[-1:] == [1]


def _keeps_each_sum(inputs: list[OpInputs | None]) -> bool:
    """Return whether tensors of one shape are added, and as many of it put together; where unknown, they are."""
    added = inputs[0].tensors(2) if inputs[0] is not None else []
    if len(added) == 2 and added[0].sizes != added[1].sizes:
        return False  # broadcast: a bias or a table on a larger tensor
    kept = inputs[1].list_elements(0) if inputs[1] is not None else None
    return not added or kept is None or kept >= _SUMS * added[0].elements


_FEW_OF_SORTED = 8  # times as many values as are used are sorted: a selection then reads the values once and orders few

_PARAMETER_LOOP = 8
"""Rounds from which a loop over parameters, positions or time steps is one: each costs as much as one batched op."""

_SUMS = 4 * _PARAMETER_LOOP  # additions in a row from which they are a running sum

ALGORITHMS = (
    Algorithm(
        "attention",
        r"M[mdaw]{0,3}SD?M",
        "attention is written out with matmuls and a softmax",
        Remedy(
            "call scaled_dot_product_attention, which keeps the score matrix out of memory",
            "y = F.scaled_dot_product_attention(q, k, v)",
        ),
        kept="M",
        keeps_backward=False,  # its products are slow for the scores in memory, which the library's never writes
        needs="S",
    ),
    Algorithm(
        "layer norm",
        r"us+[pm]?(?:us?)?[pm]?us*a(?:qd|Qm|qRm)|us[pm]us?a(?:qd|Qm|qRm)",
        "layer norm is written out op by op",
        Remedy("call layer_norm: one kernel in place of each", "y = F.layer_norm(x, x.shape[-1:], weight, bias)"),
        kept="u",
        needs="u",
    ),
    Algorithm(
        "RMS norm",
        r"[pm]ua(?:Qm|qd|qRm)",
        "RMS norm is written out op by op",
        Remedy("call rms_norm, or compile it: one kernel in place of each", "y = F.rms_norm(x, x.shape[-1:], weight)"),
        kept="u",
        needs="u",
    ),
    Algorithm(
        "GELU",
        r"[mp]{1,4}am{1,2}tamm?|m?[md]Famm?",
        "GELU is written out in elementwise ops",
        Remedy(
            "call gelu, or compile it: one kernel in place of each",
            "y = F.gelu(x)  # approximate='tanh' for the form with tanh",
        ),
        kept="tF",
        needs="tF",
    ),
    Algorithm(
        "softmax",
        r"(?:xs)?eUd",
        "softmax is written out with exp, sum and a division",
        Remedy("call softmax: one kernel in place of each", "y = x.softmax(-1)"),
        kept="e",
        needs="e",
    ),
    Algorithm(
        "cross entropy",
        r"(?:xs)?eUls[^\n]{0,3}?h?[mn]U|S l?[^\n]{0,2}?hm?U",
        "cross entropy is written out with exp, sum and log",
        Remedy("call cross_entropy: one fused log-softmax and loss", "loss = F.cross_entropy(logits, targets)"),
        kept="e",
        needs="eS",
    ),
    Algorithm(
        "recurrence",
        rf"([LM]a?[LM]a?(?=[gtmasd]*[gt])[gtmasd]{{1,20}}|[LM]a?(?=[tmasd]*g)(?=[gmasd]*t)[gtmasd]{{4,20}})"
        rf"\1{{{_PARAMETER_LOOP - 1},}}",
        "a recurrence (LSTM, GRU or RNN) is written as a loop over time steps",
        Remedy("call nn.LSTM, nn.GRU or nn.RNN: cuDNN runs all steps in a few kernels", "y, state = nn.LSTM(n, m)(x)"),
        needs="gt",
    ),
    Algorithm(
        "running sum",
        rf"(?<!a)a{{{_SUMS},}}K",
        "a running sum is a loop of additions",
        Remedy("call cumsum: one kernel for all positions", "totals = values.cumsum(0)"),
        fits=_keeps_each_sum,
        needs="K",
    ),
    Algorithm(
        "gradient clipping",
        rf"(?:[pm]Ua|[pm]U|Vpa|Va){{{_PARAMETER_LOOP},}}",
        "the gradient norm is computed in a loop over the parameters",
        Remedy(
            "call clip_grad_norm_, which uses torch._foreach_ ops on all gradients",
            "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm, foreach=True)",
        ),
        needs="UV",
    ),
    Algorithm(
        "moving average",
        rf"(mmay|ma|sma?y?|mmy?a|r)\1{{{_PARAMETER_LOOP - 1},}}",
        "a moving average of the weights is a loop over the parameters",
        Remedy("update all at once with a torch._foreach_ op", "torch._foreach_lerp_(averages, weights, 1 - decay)"),
    ),
    Algorithm(
        "pairwise distances",
        r"s[pm]Uq?",
        "pairwise distances are computed from all differences",
        Remedy("call cdist, which multiplies matrices and writes no differences", "distances = torch.cdist(a, b)"),
        fits=_is_broadcast_difference,
        needs="U",
    ),
    Algorithm(
        "convolution",
        r"k[LM]",
        "a convolution is written out: its windows are copied side by side, and multiplied",
        Remedy("call conv1d, conv2d or conv3d, which read each value where it lies", "y = F.conv1d(x, weight)"),
        kept="LM",
        is_whole=True,
        needs="k",
    ),
    Algorithm(
        "lookup",
        r"h[LM]",
        "a table is read by a matmul with one-hot rows",
        Remedy("call embedding, which reads the rows and multiplies nothing", "y = F.embedding(numbers, table)"),
        fits=_selects_rows,
        is_whole=True,
        needs="h",
    ),
    Algorithm(
        "diagonal product",
        r"GM",
        "rows are scaled by a matmul with a diagonal matrix",
        Remedy("multiply elementwise, with broadcasting", "y = scale[:, None] * x  # not torch.diag(scale) @ x"),
        needs="G",
    ),
    Algorithm(
        "selection",
        r"Ov+[^\nOv]",
        "all values are sorted, and few of them are used",
        Remedy("call topk, which selects without a full sort", "best = values.topk(k, dim=-1).values"),
        fits=_uses_few,
        needs="O",
    ),
)

_MAX_READ = 400  # ops whose inputs are read from the file, at most, to prove what names do not: a tenth of a second


def _find_ops(tables: TraceTables, text: OpText, algorithm: Algorithm) -> list[tuple[int, int]]:
    if algorithm.needs and not any(letter in text.text for letter in algorithm.needs):
        return []
    found = list(text.find(algorithm.expression))
    if algorithm.fits is None or not found:
        return found
    found = found[: _MAX_READ // 2]
    rows = text.ops.row[np.array([(first, stop - 1) for first, stop in found], dtype=np.int64)]
    inputs = read_inputs(tables.trace, rows.ravel())
    return [each for k, each in enumerate(found) if algorithm.fits(inputs[2 * k : 2 * k + 2])]


def _list_between(tables: TraceTables, text: OpText, stretches: list[tuple[int, int]]) -> I64:
    """List the ops without a letter between the first and the last op of each stretch: rows, int64[k]."""
    every = tables.outermost_ops.row
    ends = text.ops.row[np.array([(first, stop - 1) for first, stop in stretches], dtype=np.int64)]
    first, last = every.searchsorted(ends[:, 0], side="right"), every.searchsorted(ends[:, 1])
    return np.concatenate([every[a:b] for a, b in zip(first.tolist(), last.tolist(), strict=True)])


@register_fault(
    "An algorithm is written out op by op",
    meaning="each of these ops is launched by itself, and reads and writes whole tensors",
    action="call the library's op, or compile the function",
    decided="The ops of a thread in their order, without views and casts, match a known sequence: attention, norms, "
    "GELU, softmax, cross entropy, a recurrence, a running sum, clipping, a moving average, distances, a convolution, "
    "a product with one-hot rows or a diagonal matrix, a sort for few values. The costliest is named. Time at stake: "
    "these ops, their nodes of the backward pass, and the GPU work that they launched.",
    needs=(ScopeView.missing_gpu_reason, ScopeView.missing_ops_reason, ScopeView.missing_links_reason),
)
def written_out(view: ScopeView) -> Answer:
    found = [
        answer_fault(
            view,
            each.rows,
            each.seen,
            each.algorithm.remedy,
            kept=each.kept,
            gaps=each.gaps,
            headline=each.algorithm.headline,
        )
        for each in view.tables.compute_once(find_written_algorithms)
    ]
    costliest = max(found, key=lambda answer: answer.at_stake, default=Answer.absent())
    return costliest if costliest.at_stake else Answer.absent()


@record
class WrittenAlgorithm:
    """Where an algorithm is written out in the whole trace: `rows`, `kept` int64[k] and `gaps` as of `answer_fault`."""

    algorithm: Algorithm
    seen: str
    rows: I64
    kept: I64 | None
    gaps: I64


def find_written_algorithms(tables: TraceTables) -> list[WrittenAlgorithm]:
    """Find the algorithms that are written out in the whole trace; use `TraceTables.compute_once`."""
    text = tables.compute_once(write_op_text)
    found = []
    for algorithm in ALGORITHMS:
        stretches = _find_ops(tables, text, algorithm)
        if not stretches:
            continue
        index = np.concatenate([np.arange(first, stop) for first, stop in stretches])
        rows = text.ops.row[index]
        number = np.repeat(np.arange(len(stretches)), [stop - first for first, stop in stretches])
        gaps = pair_neighbours(tables.trace, rows, number)
        kept = rows[is_in(text.letters[index], list(map(ord, algorithm.kept)))] if algorithm.kept else None
        if kept is not None and algorithm.keeps_backward:
            kept = add_backward_nodes(tables, kept)
        if algorithm.is_whole:
            rows = np.concatenate([rows, _list_between(tables, text, stretches)])
        seen = f"{algorithm.name}: {format_count(len(rows), 'op')} in {format_count(len(stretches), 'place')}"
        if kept is None:
            ends = text.ops.row[np.array([(first, stop - 1) for first, stop in stretches], dtype=np.int64)]
            rows = sorted_unique(np.concatenate([rows, find_ops_around(tables, ends[:, 0], ends[:, 1])]))
        found.append(WrittenAlgorithm(algorithm, seen, add_backward_nodes(tables, rows), kept, gaps))
    return found
