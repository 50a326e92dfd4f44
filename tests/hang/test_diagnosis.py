"""Causes on literal dumps of NCCL, whose states gloo does not record."""

from __future__ import annotations

import random
from typing import Any

from tests.hang.literals import call, explain
from torchprof_hang.analysis.alignment import format_ranks
from torchprof_hang.analysis.diagnosis import Cause

LOOP = ("all_reduce", "all_gather", "broadcast")


def steps(count: int) -> list[dict[str, Any]]:
    return [call(number, LOOP[(number - 1) % 3]) for number in range(1, 3 * count + 1)]


def test_a_skipped_call_is_known_from_earlier_steps() -> None:
    usual = [*steps(2), call(7, "all_reduce", state="started")]
    found = explain(usual, usual, [*steps(2), call(7, "all_gather", state="started")])
    assert (found.cause, found.ranks, found.place) == (Cause.SKIPPED, (2,), "train.py:10")
    assert found.sentence == (
        "rank 2 skipped all_reduce [64] at train.py:10: ranks 0 and 1 wait in #7 of the default group, "
        "rank 2 is in all_gather [64] at train.py:20"
    )


def test_with_two_ranks_the_one_that_does_as_before_is_right() -> None:
    """Of two ranks neither is in the majority; each of them is at fault once."""
    right, wrong = (
        [*steps(2), call(7, "all_reduce", state="started")],
        [*steps(2), call(7, "broadcast", state="started")],
    )
    assert explain(right, wrong).ranks == (1,)
    assert explain(wrong, right).ranks == (0,)


def test_in_the_first_step_the_lines_decide() -> None:
    found = explain(
        [call(1, state="started")], [call(1, state="started")], [call(1, "all_gather", state="started", line=12)]
    )
    assert (found.cause, found.ranks) == (Cause.SKIPPED, (2,))
    found = explain(
        [call(1, state="started")], [call(1, state="started")], [call(1, "all_gather", state="started", line=7)]
    )
    assert (found.cause, found.ranks) == (Cause.ORDER, (2,))


def test_calls_that_follow_tell_an_order_from_a_skip() -> None:
    a, b, c = ("all_reduce", "all_gather", "broadcast")
    usual = [call(1, a, state="started"), call(2, b, state="scheduled"), call(3, c, state="scheduled")]
    swapped = [call(1, b, state="started"), call(2, a, state="scheduled"), call(3, c, state="scheduled")]
    skipped = [call(1, b, state="started"), call(2, c, state="scheduled")]
    assert explain(usual, usual, swapped).cause is Cause.ORDER
    assert explain(usual, usual, skipped).cause is Cause.SKIPPED


def test_sizes_and_dtypes() -> None:
    usual = [*steps(1), call(4, state="started")]
    found = explain(usual, [*steps(1), call(4, size=48, state="started")], usual)
    assert (found.cause, found.ranks, found.operation) == (Cause.SIZE, (1,), "all_reduce [48]")
    assert (
        found.sentence == "rank 1 brought all_reduce [48] at train.py:10, ranks 0 and 2 [64]: #4 of the default group"
    )
    other = [*steps(1), call(4, state="started", input_dtypes=["Half"])]
    found = explain(usual, usual, other)
    assert (found.cause, found.ranks) == (Cause.DTYPE, (2,))


def test_sizes_that_may_differ_are_no_fault() -> None:
    entries = [[call(1, "all_to_all", size, state="completed")] for size in (3, 5, 7)]
    assert explain(*entries).cause is Cause.NONE
    scattered = [[call(1, "scatter", input_sizes=sizes)] for sizes in ([[3]], [], [])]
    assert explain(*scattered).cause is Cause.NONE


def test_a_rank_without_a_dump_is_dead_and_one_without_a_stack_is_behind() -> None:
    usual = [*steps(1), call(4, state="started")]
    found = explain(usual, None, usual)
    assert (found.cause, found.ranks, found.waiting, found.number) == (Cause.DEAD, (1,), (0, 2), 4)
    found = explain(usual, steps(1), usual)
    assert (found.cause, found.ranks) == (Cause.BEHIND, (1,))
    assert "its last call was broadcast [64] at train.py:30" in found.sentence


def test_the_network_is_named_only_where_all_have_come() -> None:
    for states, words in (
        (("started", "started"), "none completed it"),
        (
            ("completed", "started"),
            "rank 0 completed all_reduce [64] at train.py:10, #4 of the default group, rank 1 did not",
        ),
        (("scheduled", "scheduled"), "a GPU busy with what came before"),
    ):
        untimed = [{**each, "time_discovered_started_ns": None} for each in steps(1)]  # as NCCL writes them by default
        found = explain(*([*untimed, call(4, state=state)] for state in states))
        assert found.cause is Cause.NETWORK
        assert words in found.sentence


def test_a_busy_gpu_is_named_where_starts_are_recorded() -> None:
    before = call(3, state="completed", time_discovered_started_ns=7)
    found = explain([before, call(4, state="started")], [before, call(4, state="scheduled")])
    assert (found.cause, found.ranks, found.waiting) == (Cause.GPU, (1,), (0,))
    found = explain(*([before, call(4, state="scheduled")] for _ in range(2)))
    assert (found.cause, found.ranks, found.waiting) == (Cause.GPU, (0, 1), ())


def test_a_finished_job_does_not_hang() -> None:
    assert explain(steps(2), steps(2)).cause is Cause.NONE


def test_ring_buffers_that_begin_at_different_calls() -> None:
    usual = [*steps(4), call(13, state="started")]
    found = explain(usual[5:], usual[2:], [*steps(4)[3:], call(13, "all_gather", state="started")])
    assert (found.cause, found.ranks, found.number) == (Cause.SKIPPED, (2,), 13)


def test_a_receive_that_nobody_answers() -> None:
    receive = call(1, "recv 0<-1", state="started", is_p2p=True, p2p_seq_id=1)
    found = explain([receive], [call(1, "all_reduce", state="started")])
    assert (found.cause, found.ranks, found.waiting) == (Cause.P2P, (1,), (0,))
    assert (
        "rank 0 waits in recv from rank 1 at train.py:40, which is in all_reduce [64] at train.py:10" in found.sentence
    )


def test_all_send_first() -> None:
    ring = [
        [call(1, f"send {rank}->{(rank + 1) % 3}", state="started", is_p2p=True, p2p_seq_id=1)] for rank in range(3)
    ]
    found = explain(*ring)
    assert (found.cause, found.ranks) == (Cause.P2P, (0, 1, 2))
    assert "all send first" in found.sentence


def test_coalesced_operations_are_one() -> None:
    def group(number: int, sizes: tuple[int, ...], state: str) -> list[dict[str, Any]]:
        parts = [call(number, "all_gather", size, state, record_id=10 * number + at) for at, size in enumerate(sizes)]
        return [*parts, call(number, "coalesced", 0, state, record_id=10 * number + 9, input_sizes=[], output_sizes=[])]

    usual = [*group(1, (4, 5), "completed"), *group(2, (4, 5), "started")]
    found = explain(usual, [*group(1, (4, 5), "completed"), *group(2, (4, 6), "started")], usual)
    assert (found.cause, found.ranks, found.operation) == (Cause.SIZE, (1,), "all_gather_coalesced [4] [6]")


def test_every_skip_in_random_loops_is_found() -> None:
    """An independent generator: loops of random calls, in which one rank leaves one out after some steps."""
    chance = random.Random(7)
    for _ in range(60):
        names = [
            (chance.choice(LOOP), chance.choice((8, 16, 32)), line) for line in range(50, 50 + chance.randint(3, 7))
        ]
        ranks, step, at = chance.randint(2, 6), chance.randint(1, 4), chance.randrange(len(names) - 1)
        guilty = chance.randrange(ranks)
        calls = [names[index % len(names)] for index in range(step * len(names) + at + 1)]
        stuck = len(calls)
        usual = [
            call(number, name, size, "started" if number == stuck else "completed", line)
            for number, (name, size, line) in enumerate(calls, 1)
        ]
        name, size, line = names[(at + 1) % len(names)]
        if (name, size) == names[at][:2]:
            continue  # the same operation from another line: nothing waits there
        other = [*usual[:-1], call(stuck, name, size, "started", line)]
        found = explain(*(other if rank == guilty else usual for rank in range(ranks)))
        assert (found.cause, found.ranks, found.place) == (Cause.SKIPPED, (guilty,), f"train.py:{names[at][2]}")


def test_ranks_as_text() -> None:
    assert format_ranks([1]) == "rank 1"
    assert format_ranks([2, 0]) == "ranks 0 and 2"
    assert format_ranks([0, 1, 2, 3, 5]) == "ranks 0 to 3 and 5"
    assert format_ranks(range(1, 1024, 2)).startswith("512 ranks (1, 3, 5, 7, 9, 11, …)")
