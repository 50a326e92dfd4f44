"""Guides of the help: what the lines of a panel or of a screen mean."""

from __future__ import annotations

import re

from torchprof_tui.trace.core.records import record


@record
class Guide:
    """A guide's title, its lines as (what is shown, what it means), and words of the dictionary."""

    title: str
    lines: tuple[tuple[str, str], ...]
    terms: tuple[str, ...] = ()


_GUIDES_TEXT = """\
details | Panel: details | self time, total time, launch
    name: the name of the selected event, then its kind and what it is
    why, costs: why such an event is there, and what it usually costs
    time: its duration, its self time if other events are nested in it, and its start
    lane: the thread or stream, and the nesting depth of the event
    within: its parent, its start after that of the parent, and its share of the parent's time
    same name: all events of the same name: their number, shortest, median, longest, sum
    cause, launches: the call that launched it, or the GPU work that it launched; [ and ] go there
    args: the args that the profiler recorded with it, as in the file
chain | Panel: chain | dispatch chain, launch latency, queue delay, self time
    first line: launch latency and queue delay of the GPU work, and the work before it in the queue
    rows: the path from the step down to the launch, then ⇢ the GPU work; ▶ is the selected event
    after: the start of a row, after the start of the row above
    total, self: the row's duration, with and without its children
    line: the line of the program that led here, if Python stacks were recorded; enter opens it
    kernel: the footprint of the kernel at the end; k shows all of it
    GPU work: all work that the selected op launched, longest first
kernel | Panel: kernel | footprint, occupancy, SM, warp, wave, registers, shared memory
    launch: the grid of blocks and the threads per block of the launch
    takes: registers of each thread and shared memory of each block
    occupancy: computed from the launch: the warps of this kernel that fit on an SM, of the maximum
    limited by: a grid too small to fill the GPU once, then the resource that allows the fewest blocks on an SM (◀)
    grid: the number of waves of the grid, and how full the last one is
    what if: a smaller footprint with which more blocks would fit
    runs: the durations of all runs of this kernel, and when this one ran
    moves, speed: for a copy: source, target, bytes, and the share of the peak bandwidth
cheatsheet | Panel: cheatsheet | scope, pattern, finding, evidence, cost, verdict, undetermined
    first line: the scope, and how many patterns are problems, notes, not present, undetermined
    verdict: what limits the scope and what to do first; below it, how its time divides
    ● ○ ·: a problem that costs 2 % of the time or more; a note; an effect of the profiler
    numbers: the most that it costs, and that as a share of what the line above the list names
    measured, why, do: the numbers here; why it matters; what to change
    go to: the events that show it: enter fits the first, n N go through them
    rule: how the pattern is decided, with the thresholds and the reason for each; E shows it
    ?: patterns that this trace cannot decide, with the reason
range | Panel: range | GPU busy, self time, step
    first line: the length, start and end of the marked range; m sets its end
    busy: the share of the range in which each GPU worked, and the steps in the range
    GPU time: the names with most GPU time in the range: time, number of runs, mean
    CPU self time: the names with most CPU self time
    lane: the share of the range in which each lane was busy, and its events
path | Panel: critical path | critical path, slack, step, queue delay
    replay: what the recorded dependencies alone take, from 1 % difference; 5 %: what is missing
    selected: whether the selected event is on the path, or how much longer it could take (its slack)
    share: the path by kind: the shares sum to the step; only a shorter path makes it shorter
    GPU queue: GPU work could start: latency of launches, order of the stream
    longest: the longest pieces of the path; enter shows one, n N walk along the path in time
    ● and grey: on the lanes: what is on the path at that time keeps its colour, the rest is dimmed
doctor | Panel: trace doctor
    Lost: entries of the file that could not be used, such as its missing end
    Repaired: entries that were wrong and have been repaired, and how
    Odd, but valid: unusual but valid data, such as events that overlap
    Not recorded: data that was not recorded, and the option that records it
    number: the number of entries or events; the current row shows an example
    enter: goes to an example event
table | Profiler table | self time, total time, scope, straggler
    row: all calls of one name in the scope; b groups them by shape, stack, module, class, step or kind
    self: time without nested events, so that the sum counts nothing twice; total includes them
    GPU: for a CPU row the time of the GPU work that it launched; for a kernel its duration
    tabs: kernels, copies, collectives and memory each have a table; charts show shares of time
    below: the current row: its instances, callers and callees; { and } choose an instance
    last line: the number of rows, the scope, and the totals that the shares refer to
diff | Comparison | step, self time, launch, pattern
    first lines: how much longer a step of B is than one of A, beyond the noise or not; the largest cause
    lanes: A above B: the same distance from the start of the compared step is in the same column
    + - *: an event begins with + if it is only in B, - only in A, * other names or GPU work at its place
    m: aligns both at the selected op, so what follows it is compared; again: at the step's start
    account: the parts of a step: each bar moves the time from A's to B's; ~ is within the noise
    rows: ops matched along the call tree, by the size of their change; b: kernels, modules, classes
    remarks: causes with their lines, what was recorded differently, patterns of one side, left out steps
    1 … 9: the difference of that number; i: the explorer of the side with the keys; esc comes back
tree | Dispatch tree | dispatch chain, self time, total time
    row: all calls with the same path of names, as one node; the longest first
    ⇢: GPU work, below the call that launched it
    calls: the number of calls of the node
    total, self: their time on the CPU, with and without what they call
    GPU, %: the time of all GPU work below the node, and its share of all GPU work
flame | Flame graph | flame graph, self time, scope, launch
    box: all events with the same path of frames; its width is their time and that of what they call
    below it: the frames that it calls, heaviest first; the empty part to their right is its self time
    ░: frames narrower than a cell, added up; enter zooms into them
    stacks: Python frames, down to the GPU work; backward ops are below their forward ops
    modules, ops: calls of nn.Modules; annotations, ops and runtime calls as they nest
    GPU time: kernels, copies and memsets, below the frame that launched them
    CPU time: events on CPU threads, without what is nested in them; waiting counts too
    (no …): time for which no such frame was recorded
roofline | Roofline | roofline, kernel
    ╱ ─: the rate that the memory allows at this number of operations for each byte; the peak of a data type
    1 … 9, a …: the kernels below, most GPU time first; o: others. share: of the time of all GPU work
    limit: the peak that is near; neither: under 30 % of both; unknown: no bytes or operations are known
memory | Memory
    curve: allocated bytes over time, stacked by category; each cell shows its highest moment
    ▼ peak, ╌: the most that is allocated in the trace; reserved memory, where it is recorded
    │: the cursor, ← →: all below the curve is at its time; p moves it to the peak
    rows: one allocation each, the largest first; its bar is its lifetime, ◀ ▶ where it goes on
    before, end: allocated before the recording; never freed in it
    groups: what is alive at the cursor by category, op, module, line, phase or shape (b)
    category: decided from what allocated it and how long it lives: torchprof-tui memory prints the rules
snapshot | A memory snapshot
    curve: what the program requested over the recorded history; ╌ what was reserved for it
    ▼ peak, │: the most that was requested; the cursor, ← →: the lists are of its time, end is the snapshot
    line, stack: what is alive at the cursor, by line of the program or by whole stack
    before the …: allocated before the history begins, which keeps only its last entries
    segments: memory from the driver at the time of the snapshot; █ in use, · free
    out of memory: allocations that failed, with what the device had left
learn | Learn: guess, then look | kernel, GEMM, launch
    input: what you expect: classes or parts of names, with or without a number, separated by commas
    ✓ ✗: right and wrong guesses; launched kernels that you did not name are listed too
    launched: how many kernels of that class or name the range launched, and their GPU time
    this trace: each finding as a question: what do you expect, look, what it is
    cases: samples with questions, a few minutes each; right: how many answers were as expected
source | Source
    ▶ line: the line named by the chain panel or by the cheatsheet's finding
    file: the file is read from the trace's host if opened over ssh, else from this machine
"""
"""Each guide with its name, title and words; below it what is shown, and what that means."""


def _parse_guides(text: str) -> dict[str, Guide]:
    guides = {}
    for block in re.split(r"\n(?=\S)", text.rstrip()):
        head, *lines = block.split("\n    ")
        name, title, *terms = head.split(" | ")
        pairs = (line.split(": ", 1) for line in lines)
        words = tuple(terms[0].split(", ")) if terms else ()
        guides[name] = Guide(title, tuple((label, text) for label, text in pairs), words)
    return guides


GUIDES = _parse_guides(_GUIDES_TEXT)  # by panel of the explorer, and by screen for the others
