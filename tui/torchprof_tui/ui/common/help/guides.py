"""Guides: what the lines of a panel or a screen mean, and the words of the glossary that belong to it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Guide:
    """A guide's title, its lines as (what is shown, what it means), and terms of the glossary."""

    title: str
    lines: tuple[tuple[str, str], ...]
    terms: tuple[str, ...] = ()


GUIDES: dict[str, Guide] = {
    "details": Guide(
        "Panel: details",
        (
            ("name", "the full name of the selected event, then its kind and what that kind is"),
            ("time", "its duration, its self time where others are nested in it, and when it begins"),
            ("lane", "the thread or stream, and how deep the event is nested there"),
            ("within", "its parent, how long after the parent's start it begins, and its share of it"),
            ("alike", "all events of the same name: their number, shortest, median, longest, sum"),
            ("link", "the call that launched it, or the GPU work that it launched; ] and [ go there"),
            ("args", "what the profiler recorded with it, as in the file"),
        ),
        ("self time", "total time", "launch"),
    ),
    "chain": Guide(
        "Panel: chain",
        (
            ("first line", "launch latency and queue delay of the GPU work, and the work that it queued behind"),
            ("rows", "the path from the step down to the launch, then ⇢ the GPU work; ▶ is the selected event"),
            ("after", "how long after the first row's start a row begins"),
            ("total, self", "the row's duration, and what is left of it without its children"),
            ("line", "the line of the program that led here, if Python stacks were recorded; enter opens it"),
            ("kernel", "the footprint of the kernel at the end; k shows all of it"),
            ("GPU work", "all work launched beneath the selected op, longest first"),
        ),
        ("dispatch chain", "launch latency", "queue delay", "self time"),
    ),
    "kernel": Guide(
        "Panel: kernel",
        (
            ("launch", "the grid of blocks and the threads of a block that the kernel was started with"),
            ("takes", "registers of each thread and shared memory of each block"),
            ("occupancy", "computed from the launch: the warps that fit on an SM, of those that it could hold"),
            ("limited by", "the resource that allows the fewest blocks on an SM; ◀ marks it in the list"),
            ("grid", "how many waves the blocks make, and how full the last one is"),
            ("what if", "a smaller footprint that would let more blocks fit"),
            ("runs", "the durations of all runs of this kernel, and the place of this one in time"),
            ("moves, speed", "for a copy: where from and to, how many bytes, and the share of the peak"),
        ),
        ("footprint", "occupancy", "SM", "warp", "wave", "registers", "shared memory"),
    ),
    "cheatsheet": Guide(
        "Panel: cheatsheet",
        (
            ("first line", "the scope, and how many patterns are problems, notes, not present, undetermined"),
            ("verdict", "what the scope is bound by and what to do first; below it, where its time went"),
            ("● ○ ·", "a problem that costs 0.5 % of the time or more; a note; an effect of the profiler"),
            ("numbers", "the time that a fix could win back, and its share of the scope"),
            ("measured", "what was found here; meaning: why it matters; fix: what to change"),
            ("rule", "how the pattern was decided, with the thresholds and the reason for each"),
            ("evidence", "the events that show it: enter fits the first, n N go through them"),
            ("?", "patterns that this trace cannot decide, with the reason"),
        ),
        ("scope", "pattern", "finding", "evidence", "time at stake", "verdict", "undetermined"),
    ),
    "range": Guide(
        "Panel: range",
        (
            ("first line", "the length of the marked range, from when to when; m sets its end"),
            ("busy", "the share of the range in which each GPU worked, and the steps that it touches"),
            ("GPU time", "the names with most GPU time in the range: time, number of runs, mean"),
            ("CPU self time", "the names with most CPU time of their own, without their children"),
            ("lane", "how busy each lane was in the range, and its events"),
        ),
        ("GPU busy", "self time", "step"),
    ),
    "doctor": Guide(
        "Panel: trace doctor",
        (
            ("Lost", "entries of the file that could not be used, such as its missing end"),
            ("Repaired", "entries that were wrong and have been mended, and how"),
            ("Odd, but valid", "what is unusual but no fault, such as events that overlap"),
            ("Not recorded", "what the profiler was not asked for, and the option that records it"),
            ("number", "how many entries or events it concerns; the current one shows an example"),
            ("enter", "goes to an event that shows it"),
        ),
    ),
    "table": Guide(
        "Profiler table",
        (
            ("row", "all calls of one name in the scope; b groups them by shape, stack, module, class or step"),
            ("self", "time without nested events: these sum up; total includes what is nested"),
            ("GPU", "for a CPU row the time of the GPU work that it launched; for a kernel its own time"),
            ("tabs", "kernels, copies, collectives and memory each have a table; charts draws shares"),
            ("below", "the row under the cursor: its instances, callers and callees; , . choose an instance"),
            ("last line", "rows listed, the scope, and the totals that the shares refer to"),
        ),
        ("self time", "total time", "scope", "straggler"),
    ),
    "tree": Guide(
        "Dispatch tree",
        (
            ("row", "all calls with the same path of names, as one node; the heaviest comes first"),
            ("⇢", "GPU work, below the call that launched it"),
            ("calls", "how many calls the node stands for"),
            ("total, self", "their time on the CPU, with and without what they call"),
            ("GPU, %", "the time of all GPU work below the node, and its share of all GPU work"),
        ),
        ("dispatch chain", "self time", "total time"),
    ),
    "guess": Guide(
        "Guess, then look",
        (
            ("input", "what you expect: classes or parts of names, each with a number or without, and commas"),
            ("✓ ✗", "a guess that was right, or wrong; kernels that nobody guessed are listed, too"),
            ("launched", "how many kernels of that class or name the range launched, and their GPU time"),
        ),
        ("kernel", "GEMM", "launch"),
    ),
    "source": Guide(
        "Source",
        (
            ("▶ line", "the line that the chain, or the entry of the cheatsheet, names"),
            ("file", "read on the host of a trace that was opened over ssh, else on this machine"),
        ),
    ),
}
"""By panel of the explorer, and by screen for the others."""
