"""The name search: its matches, and the next one from an event or a time."""

from __future__ import annotations

from tests.helpers.trace_builder import cpu, kernel, python, trace
from torchprof_tui.ui.lanes.view_state import NameSearch

US = 1000


def test_the_search_counts_from_an_event_or_a_time() -> None:
    shown = trace(cpu("mm", 0, 5), cpu("add", 10, 5), cpu("mm", 20, 5), cpu("mm", 30, 5))
    names = NameSearch(shown)
    assert names.find_adjacent_match(0, 0, True) == -1  # no query
    assert names.set_query("mm") == ""
    assert [names.match_number(event) for event in (-1, 0, 1, 2, 3)] == [0, 1, 0, 2, 3]
    assert names.find_adjacent_match(-1, 12 * US, True) == 2
    assert names.find_adjacent_match(-1, 12 * US, False) == 0
    assert [names.find_adjacent_match(event, 0, True) for event in (0, 2, 3)] == [2, 3, 0]
    assert "regular expression" in names.set_query("/(/")
    assert (names.matches, names.query) == (None, "/(/")


NVJET = "nvjet_sm90_tst_64x8_64x16_1x4_h_bz_NNT"


def test_the_search_finds_what_the_lanes_print() -> None:
    shown = trace(
        kernel(NVJET, 0, 5),
        kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 10, 5),
        python("/a/very/long/path/train.py(12): forward", 20, 5),
        cpu(NVJET, 30, 5),  # the name of a kernel on a thread is not decoded there
        cpu("gemm", 40, 5),
    )
    names = NameSearch(shown)

    def count(text: str) -> int:
        assert names.set_query(text) == ""
        assert names.matches is not None
        return len(names.matches)

    assert count("all-reduce bf16") == 1
    assert count("collective · NCCL") == 1
    assert count("gemm · gemm") == 0  # the class is printed only where the name does not say it
    assert count("forward train.py:12") == 1
    assert count("/^gemm bf16 64×8$/") == 2  # a name is searched once, wherever its events are
    assert count("nvjet") == 2
    assert count("gemm") == 3
    assert count("GEMM") == 0
