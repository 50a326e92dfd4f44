"""The dictionary: its form, its page, the words of articles and verdicts, and real events of each kind."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest

from tests.helpers.paths import ROOT
from tools.words_page import PAGE, build_page
from torchprof_samples import SAMPLES
from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.verdict.verdict import Regime
from torchprof_tui.analysis.words import dictionary
from torchprof_tui.analysis.words.dictionary import (
    Word,
    find_event_word,
    find_kind_word,
    find_named_word,
    find_word,
    load_words,
    to_phrase,
)
from torchprof_tui.commands.common.load import load_specs
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.ui.common.guides import GUIDES

MAX_SENTENCE = 160

ARTICLE_WORDS = """
    ProfilerStep annotation schedule wait warmup active repeat warm-up|dead window|hotspot|self time|total time
    kernel launch stream grid block SM|shared memory|registers occupancy|occupancy query|tile epilogue GEMM fusion
    cuBLAS|lazy loading|buffer request|memcpy memset DtoD matmul mm bmm addmm
    Dynamo guard AOTAutograd|FX graph|CompiledFxGraph Inductor Triton
    Kineto CUPTI autograd dispatcher cudaLaunchKernel cudaDeviceSynchronize|launch overhead|overhead-bound|compute-bound
"""
"""The words that articles on reading traces of torch.profiler use."""


def test_terms_are_unique_and_sorted() -> None:
    terms = [word.term.casefold() for word in load_words()]
    assert terms == sorted(set(terms))
    names = [name.casefold() for word in load_words() for name in (word.term, *word.also)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("word", load_words(), ids=[word.term for word in load_words()])
def test_each_fact_is_one_plain_sentence(word: Word) -> None:
    assert bool(word.why) == bool(word.costs), "both or neither"
    for fact in filter(None, (word.sentence, word.why, word.costs)):
        assert re.search(r"[^.]\.$", fact)
        assert len(fact) <= MAX_SENTENCE
        assert (
            fact[0].isupper()
            or fact[0].isdigit()
            or fact.split()[0].startswith(("mm", "topk", "zero_", "torch.", "nn."))
        )
    assert not re.search(rf"(?<![\w.]){re.escape(word.term)}\b", word.sentence, re.IGNORECASE), "defined by itself"
    assert word.where or word.patterns


def test_words_that_explain_events_say_why_and_what_they_cost() -> None:
    for matcher in dictionary._load()[1]:
        assert matcher.word.why, matcher.word.term


def test_the_words_of_articles_are_there_with_all_facts() -> None:
    words = [word for part in ARTICLE_WORDS.replace("\n", "|").split("|") for word in _split_words(part.strip())]
    assert len(words) >= 38
    for term in words:
        assert find_word(term).sentence, term


def _split_words(part: str) -> list[str]:
    return [part] if part in {name for word in load_words() for name in (word.term, *word.also)} else part.split()


def test_the_page_in_docs_equals_the_data() -> None:
    """Write it again with `python -m tools.words_page`."""
    assert PAGE.read_text(encoding="utf-8") == build_page()
    assert "docs/words.md" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_guides_name_known_terms() -> None:
    for guide in GUIDES.values():
        assert [find_word(term).term for term in guide.terms] == list(guide.terms)
        assert len(guide.terms) == len(set(guide.terms))
        assert 2 <= len(guide.lines) <= 8


def test_patterns_that_it_refers_to_exist() -> None:
    known = {page.stem for page in (ROOT / "docs" / "patterns").glob("*.md")}
    for word in load_words():
        assert set(word.patterns) <= known, word
        assert "cheatsheet (c): " not in word.where, "as patterns, so that the page links them"


def test_every_verdict_has_a_word() -> None:
    terms = {word.term.casefold() for word in load_words()}
    for regime in Regime:
        assert ("cpu-only trace" if regime is Regime.CPU_ONLY else regime.value) in terms, regime


@pytest.mark.parametrize(
    ("term", "number"),
    [
        ("overhead-bound", f"{thresholds.GPU_BUSY_LOW.value:.0%}"),
        ("compute-bound", f"{thresholds.GPU_BUSY_HIGH.value:.0%}"),
        ("problem", f"{thresholds.LISTED_SHARE.value:.0%}"),
        ("cold call", f"{thresholds.COLD_CALL_MIN.value / 1e6:.0f} ms"),
    ],
)
def test_numbers_are_those_of_the_thresholds(term: str, number: str) -> None:
    assert number.replace("%", " %") in find_word(term).sentence


def test_a_quarter_is_the_share_that_names_input_and_communication() -> None:
    assert thresholds.BOUND_SHARE.value == 0.25
    assert thresholds.OVERHEAD_SHARE_OF_IDLE.value == 0.5
    for term in ("input-bound", "communication-bound"):
        assert "quarter of the time" in find_word(term).sentence


def test_labels_that_it_refers_to_are_labels_of_idle_gaps() -> None:
    known = {cause.label for cause in IdleCause}
    for word in load_words():
        for label in re.findall(r"labels \(x\): ([a-z ]+)", word.where):
            assert label in known, word


@pytest.mark.parametrize("kind", Kind, ids=[kind.name for kind in Kind])
def test_an_unknown_event_gets_what_holds_for_its_kind(kind: Kind) -> None:
    name = "a name \n of nobody's" if kind is not Kind.OP else "library::of_nobodys"
    assert find_named_word(kind, name) is None
    assert find_event_word(kind, name) == find_kind_word(kind)


def test_an_op_without_a_namespace_is_not_called_a_dispatched_operator() -> None:
    assert find_event_word(Kind.OP, "PythonDispatchMode").term == "CPU op"
    assert find_event_word(Kind.OP, "fbgemm::some_op").term == "aten op"


@pytest.mark.parametrize("kernel_class", KernelClass)
def test_each_class_of_kernels_has_a_word(kernel_class: KernelClass) -> None:
    label = kernel_class.label
    found = [
        matcher
        for matcher in dictionary._load()[1]
        if matcher.kind is Kind.KERNEL and not matcher.is_fallback and re.fullmatch(matcher.regex, label)
    ]
    general = kernel_class in (KernelClass.OTHER, KernelClass.MEMORY)
    assert len(found) == (0 if general else 1)


@cache
def _list_sample_events() -> dict[tuple[Kind, str], list[int]]:
    """List the durations, ns, of all events of the samples by kind and name."""
    durations: dict[tuple[Kind, str], list[int]] = {}
    for sample in SAMPLES:
        trace = load_specs([f"sample:{sample.name}"], cache=False).trace
        keys = np.asarray(trace.kind).astype(np.int64) * len(trace.names) + trace.name
        order = np.argsort(keys, kind="stable")
        found, first = np.unique(keys[order], return_index=True)
        for key, rows in zip(found.tolist(), np.split(order, first[1:]), strict=True):
            kind, name = divmod(key, len(trace.names))
            durations.setdefault((Kind(kind), trace.names[name]), []).extend(trace.duration[rows].tolist())
    return durations


@pytest.mark.long
def test_no_event_of_the_samples_has_two_words() -> None:
    for kind, name in _list_sample_events():
        matchers = dictionary._match(kind, name)
        assert sum(not matcher.is_fallback for matcher in matchers) <= 1, (kind, name)
        assert sum(matcher.is_fallback for matcher in matchers) == 1, (kind, name)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "name", "term"),
    [
        (Kind.STEP, r"ProfilerStep#\d+", "ProfilerStep"),
        (Kind.ANNOTATION, "matmul_add", "annotation"),
        (Kind.ANNOTATION, r"enumerate\(DataLoader\).*", "DataLoader"),
        (Kind.ANNOTATION, r"Optimizer\.step#.*", "Optimizer.step"),
        (Kind.PYTHON, r"nn\.Module: .*", "nn.Module"),
        (Kind.PYTHON, r".*\.py\(\d+\): .*", "Python frame"),
        (Kind.OP, "aten::mm", "mm"),
        (Kind.OP, "aten::bmm", "bmm"),
        (Kind.OP, "aten::addmm", "addmm"),
        (Kind.OP, "aten::transpose", "metadata op"),
        (Kind.OP, "aten::mul", "aten op"),
        (Kind.OP, "TorchDynamo Cache Lookup", "TorchDynamo Cache Lookup"),
        (Kind.OP, "AOTDispatcher Runtime Wrapper Prologue", "AOT prologue"),
        (Kind.OP, "Torch-Compiled Region: .*", "Torch-Compiled Region"),
        (Kind.OP, "## Call CompiledFxGraph .*", "CompiledFxGraph"),
        (Kind.OP, "triton_poi_.*", "Triton launch"),
        (Kind.OP, r".*AddmmBackward0", "autograd node"),
        (Kind.RUNTIME, "cudaOccupancy.*", "occupancy query"),
        (Kind.RUNTIME, "cu(da)?LaunchKernel.*", "cudaLaunchKernel"),
        (Kind.RUNTIME, "cudaDeviceSynchronize", "cudaDeviceSynchronize"),
        (Kind.RUNTIME, "cudaMemcpyAsync", "cudaMemcpyAsync"),
        (Kind.RUNTIME, "cudaGraphLaunch", "cudaGraphLaunch"),
        (Kind.KERNEL, "nvjet_.*_coopA_.*", "GEMM"),
        (Kind.KERNEL, r"void at::native::vectorized_elementwise_kernel<.*CUDAFunctor_add<.*", "elementwise"),
        (Kind.KERNEL, "triton_.*", "Triton kernel"),
        (Kind.COPY, "Memcpy DtoD.*", "device-to-device copy"),
        (Kind.COPY, "Memcpy HtoD.*", "host-to-device copy"),
        (Kind.COPY, "Memcpy DtoH.*", "device-to-host copy"),
        (Kind.MEMSET, "Memset.*", "memset"),
        (Kind.COLLECTIVE, "ncclDevKernel.*", "collective"),
        (Kind.GPU_ANNOTATION, ".*", "GPU annotation"),
        (Kind.OVERHEAD, "Activity Buffer Request", "Activity Buffer Request"),
        (Kind.OVERHEAD, "Lazy Function Loading", "Lazy Function Loading"),
        (Kind.PROFILER, "Record Window End", "profiler mark"),
    ],
)
def test_real_events_have_their_word(kind: Kind, name: str, term: str) -> None:
    events = [found for of_kind, found in _list_sample_events() if of_kind is kind and re.fullmatch(name, found)]
    assert events
    assert {find_event_word(kind, found).term for found in events} == {term}


def test_usual_times_hold_for_the_samples() -> None:
    """The median of a word's events lies in the first range that its costs name."""
    measured: dict[str, list[int]] = {}
    for (kind, name), durations in _list_sample_events().items():
        measured.setdefault(find_event_word(kind, name).term, []).extend(durations)
    checked = 0
    for word in load_words():
        match = re.search(r"([\d.]+) to ([\d.]+) (µs|ms)", word.costs)
        if match and word.term in measured:
            median = float(np.median(measured[word.term])) / (1e3 if match[3] == "µs" else 1e6)
            assert float(match[1]) <= median <= float(match[2]), (word.term, median)
            checked += 1
    assert checked >= 25


def test_a_sentence_becomes_a_phrase() -> None:
    assert to_phrase("A copy, or a cast.") == "a copy, or a cast"
    assert to_phrase("CUDA loads it.") == "CUDA loads it"
    assert to_phrase("Triton compiles it.") == "Triton compiles it"
    assert to_phrase("") == ""
