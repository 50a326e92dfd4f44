"""Times and durations are exact nanoseconds, for any size and spelling of `ts` and `dur`."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from tests.helpers.decoder_input import count_problems, decode_text, entry_text, trace_text
from torchprof_tui.trace.core import problems
from torchprof_tui.trace.decode.timestamps import EXACT_MICROSECONDS, parse_durations, parse_times
from torchprof_tui.trace.model.raw_events import NO_DURATION, NO_TIME


def decode_times(*written: str, **more: Any) -> list[int]:
    decoded = decode_text(trace_text(*(f'{{"ph": "X", "name": "", "ts": {ts}}}' for ts in written), **more))
    assert decoded.problems == []
    return decoded.events.time.tolist()


def test_nanoseconds_are_exact_with_a_base_time() -> None:
    written = [f"{4328067895422 + 977 * k}.{k % 1000:03d}" for k in range(2000)]
    assert decode_times(*written) == [int(text.replace(".", "")) for text in written]


@pytest.mark.parametrize("decimals", ["{:03d}", "{:03d}000", "{:03d}5e0"])
def test_nanoseconds_are_exact_since_the_epoch(decimals: str) -> None:
    written = [f"{1712345678901234 + k}." + decimals.format(k * 7 % 1000) for k in range(500)]
    assert decode_times(*written) == [int(text[:20].replace(".", "")) for text in written] or decimals.endswith("5e0")
    if decimals.endswith("5e0"):
        assert (
            max(abs(a - int(b[:20].replace(".", ""))) for a, b in zip(decode_times(*written), written, strict=True))
            <= 1
        )


def test_a_ts_in_the_args_is_not_the_time_of_the_entry() -> None:
    entries = [
        '{"ph": "X", "args": {"ts": 1712345678901230.111}, "ts": 1712345678901234.567, "name": "a"}',
        '{"ph": "X", "ts": "1712345678901235.568", "name": "b", "args": {"ts": "x"}}',
        '{"ph": "X", "ts": 1712345678901236, "name": "c"}',
        '{"ph": "M", "name": "d"}',
    ]
    decoded = decode_text(trace_text(*entries))
    assert decoded.events.time.tolist() == [1712345678901234567, 1712345678901235568, 1712345678901236000, NO_TIME]


@pytest.mark.parametrize("ts", ["1e300", "-5e18", '"soon"', "[1]", "true1"])
def test_invalid_times_are_counted(ts: str) -> None:
    decoded = decode_text(
        trace_text(entry_text(1), f'{{"ph": "X", "name": "odd", "ts": {ts}, "dur": {ts}}}', entry_text(2))
    )
    if ts == "true1":
        assert count_problems(decoded) == {problems.UNREADABLE_ENTRY: 1}
        return
    assert decoded.events.time.tolist() == [1000, NO_TIME, 2000]
    assert decoded.events.duration.tolist() == [1000, NO_DURATION, 1000]
    assert count_problems(decoded) == {problems.BAD_TIME: 1, problems.BAD_DURATION: 1}


def test_a_negative_duration_is_kept() -> None:
    assert decode_text(trace_text(entry_text(dur=-2.5))).events.duration.tolist() == [-2500]


def test_times_that_doubles_had_to_round_are_counted_and_integers_are_not() -> None:
    """The texts of the entries are missing, as after a repair: only decimals beyond 2^43 µs have lost digits."""
    far = 1712345678901234
    values = [far + 0.5, far, 1.5, None, far + 0.25, -far - 0.5, EXACT_MICROSECONDS, EXACT_MICROSECONDS - 0.5]
    others = b" ".join(b'"ts": %r' % value for value in reversed(values) if value is not None)  # as many, not the same
    for text, lost in (
        (b"", 4),
        (others, 3),
        (b'"ts": 1712345678901234.5', 3),
        (b'"ts": 1712345678901234, "ts": 1.5', 4),
    ):
        tally = problems.ProblemTally()
        found = parse_times(values, text, tally)
        assert found[[1, 2, 3]].tolist() == [far * 1000, 1500, NO_TIME]
        assert [(each.kind, each.count) for each in tally.problems()] == [(problems.ROUNDED_TIME, lost)]


def spell_time(rng: random.Random, has_three_decimals: bool) -> str:
    """Write a time near 0, near EXACT_MICROSECONDS or far above; as a number or, without fixed decimals, as text."""
    whole = rng.choice([0, 7, 2**43 - 1, 2**43, 2**43 + 1, 10**15, 4 * 10**15]) + rng.randrange(3)
    number = rng.choice(["", "-"]) + str(whole)
    if has_three_decimals:
        return f"{number}.{rng.randrange(1000):03}"
    number += rng.choice(["", ".0", ".5", ".875", ".001", ".999"])
    if "." in number and whole >= 2**43:
        number += rng.choice(["", "0005", "0015", "e0"])
    return rng.choice([number, f'"{number}"'])


def test_times_equal_decimal_arithmetic() -> None:
    rng = random.Random(5)
    for case in range(300):
        times = [spell_time(rng, has_three_decimals=case % 2 > 0) for _ in range(rng.randrange(6))]
        other = '"args": {"ts": 5}, ' if case % 5 == 0 else ""
        text = ", ".join(f'{{{other}"ts": {time}}}' for time in times).encode()
        values = [json.loads(time) for time in times]
        expected = [int((Decimal(time.strip('"')) * 1000).to_integral_value()) for time in times]
        at = rng.randrange(len(times) + 1)
        values.insert(at, None)
        expected.insert(at, NO_TIME)
        tally = problems.ProblemTally()
        assert parse_times(values, text, tally).tolist() == expected
        assert tally.problems() == []


def test_durations_whose_sums_would_overflow_are_counted() -> None:
    most = 2.0**62 / 1000
    tally = problems.ProblemTally()
    values = [None, -most, np.nextafter(most, 0), "x", most, True, None]
    found = parse_durations(values, tally).tolist()
    assert [value == NO_DURATION for value in found] == [True, True, False, True, True, False, True]
    assert (found[2] // 2**52, found[5]) == (1023, 1000)
    assert [(problem.kind, problem.count) for problem in tally.problems()] == [(problems.BAD_DURATION, 3)]
    assert tally.problems()[0].example == repr(-most)
