"""Label kernels with their decoded names, and tell those apart that decode to the same text.

Two kernels that both decode to "mul fp32" differ in something that the short name leaves out. What is added in
brackets is the first of these that differs: how it iterates, its data types, tile, layout, stages, other decoded
details; else the words of the recorded names that differ, such as a template argument; else a number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torchprof_tui.analysis.kernel.names.model import KernelName, format_tile
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.core.late_regex import compile_later

_CPP_SIGNS = ("<", "::", "(")  # one of these is in every undecoded C++ name that is worth shortening to its base name

_DETAIL_FORMATS = {"elements per load": "{} per load", "split-K": "split-K", "cluster": "cluster {}"}
_SKIPPED_DETAILS = ("types", "layout letters", "not decoded", "kind")
"""Details that say what another field says, or that have no meaning for a reader."""

_WORD = compile_later(r"[A-Za-z_]+(?:\d+[A-Za-z_]+)*|\d+")
"""A word of a recorded name; a number at its end is a word of its own (Inductor numbers its kernels)."""

_MAX_COMPARED_WORDS = 400
_MAX_WORD_LENGTH = 36


def label_kernels(names: Sequence[str]) -> list[str]:
    """Label recorded names of GPU work, one label per name in the same order.

    Equal names have equal labels, different names have different ones.
    """
    names_by_label: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        decoded = decode_kernel_name(name)
        has_short_name = decoded.display and (decoded.known or any(sign in name for sign in _CPP_SIGNS))
        names_by_label.setdefault(decoded.display if has_short_name else name, []).append(name)
    label_of_name: dict[str, str] = {}
    for label, group in names_by_label.items():
        additions = _distinguish(group) if len(group) > 1 else [""]
        for name, addition in zip(group, additions, strict=True):
            label_of_name[name] = f"{label} ({addition})" if addition else label
    used = set(label_of_name.values())
    counts: Counter[str] = Counter()
    for name, label in label_of_name.items():  # labels that occur again are numbered: "a", "a (no. 2)" …
        counts[label] += 1
        if counts[label] > 1:
            while (text := f"{label} (no. {counts[label]})") in used:
                counts[label] += 1
            used.add(text)
            label_of_name[name] = text
    return [label_of_name[name] for name in names]


def _distinguish(names: list[str]) -> list[str]:
    """Return what to add to the label of each of these names; they differ, their labels do not."""
    facets = [_list_facets(decode_kernel_name(name)) for name in names]
    keys = dict.fromkeys(key for facet in facets for key in facet)
    additions = _select_columns([[facet.get(key, "") for facet in facets] for key in keys], len(names))
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, addition in enumerate(additions):
        groups.setdefault(addition, []).append(index)
    for addition, group in groups.items():
        if len(group) > 1:
            for index, words in zip(group, _find_differing_words([names[index] for index in group]), strict=True):
                additions[index] = (*addition, *words)
    return [", ".join(filter(None, addition)) for addition in additions]


def _list_facets(kernel: KernelName) -> dict[str, str]:
    """List what is known of a kernel beside its label: by kind, in the order in which they are compared."""
    details = {
        label: _DETAIL_FORMATS.get(label, "{}").format(value)
        for label, value in kernel.details
        if label not in _SKIPPED_DETAILS
    }
    family = kernel.family
    for general in ("PyTorch ", "Inductor ", " elementwise"):
        family = family.replace(general, "")
    return {
        "family": family,
        "load": details.pop("elements per load", ""),
        "dtypes": ", ".join(kernel.dtypes),
        "tile": format_tile(kernel.tile) if kernel.tile else "",
        "layout": kernel.layout or "",
        "epilogue": kernel.epilogue or "",
        **details,
        "stages": f"{kernel.stages} stages" if kernel.stages else "",
        "arch": kernel.arch or "",
    }


def _select_columns(columns: Sequence[list[str]], count: int) -> list[tuple[str, ...]]:
    """Select columns (one text for each of `count` rows) that tell the rows apart, as few as a greedy choice finds.

    Each time the column that tells the most rows apart is added, the first one of several.
    """
    selected: list[tuple[str, ...]] = [()] * count
    distinct = 1
    while distinct < count:
        candidates = [
            [(*texts, text) for texts, text in zip(selected, column, strict=True)]
            for column in columns
            if len(set(column)) > 1
        ]
        best = max(candidates, key=lambda candidate: len(set(candidate)), default=selected)
        if len(set(best)) <= distinct:
            break
        selected, distinct = best, len(set(best))
    return selected


def _find_differing_words(names: list[str]) -> list[tuple[str, ...]]:
    """Find the words that tell these names apart, compared by their position."""
    words = [_WORD.findall(name)[:_MAX_COMPARED_WORDS] for name in names]
    longest = max(map(len, words))
    columns = [_format_words([each[k] if k < len(each) else "" for each in words]) for k in range(longest)]
    return _select_columns(columns, len(names))


def _format_words(words: list[str]) -> list[str]:
    """Format the words at one position without the parts (between underscores) that all of them have."""
    if len(set(words)) == 1:
        return words
    parts = [word.split("_") for word in words]
    common = set.intersection(*map(set, parts))
    return [
        f"#{word}" if word.isdecimal() else "_".join(part for part in split if part not in common)[:_MAX_WORD_LENGTH]
        for word, split in zip(words, parts, strict=True)
    ]
