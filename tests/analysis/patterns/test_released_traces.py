"""Compare first sentences with what an expert read from the raw JSON of published traces."""

from __future__ import annotations

import pytest

from tests.helpers.paths import SHARED_TRACES
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.trace.loading.load_in_process import load_trace

SAID = {
    # 36 DeepEP kernels take 113.4 of 244.1 ms, 96.3 % of it beside compute; 32.6 ms are notify.
    "deepseek_train": ["compute-bound", "46 % collectives (96 % hidden behind compute, 32.6 ms of them wait"],
    # No kernel's name says what it computes; copies are dma_request.
    "mtia_inference_rank_0": ["compute-bound", "(56 % merge)", "measure merge alone"],
    # aten::uniform_ 656 ms and aten::normal_ 180 ms before the first kernel; 60 replays are the last 42 ms.
    "geng": ["(aten::uniform_ 656.0 ms, aten::normal_ 179.5 ms), before its first kernel: set-up was recorded"],
}
NEVER_SAID = {
    "geng": ["dispatch and launch"],
    "mtia_inference_rank_0": ["CUDA", "no problem"],
}


@pytest.mark.parametrize("name", SAID)
def test_the_first_sentence_is_that_of_an_expert(name: str) -> None:
    path = next(iter(sorted((SHARED_TRACES / "released").glob(f"{name}.*"))), None)
    if path is None:
        pytest.skip("this trace is not here")
    checker = Checker(load_trace(str(path), cache=False))
    text = checker.decide_verdict(findings=checker.check()).text
    assert [words for words in SAID[name] if words not in text] == []
    assert [words for words in NEVER_SAID.get(name, ()) if words in text] == []
