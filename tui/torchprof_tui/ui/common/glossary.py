"""The help in words: the glossary of the screens, and guides to what the lines of a panel or a screen mean.

The page "Words" of the help and `docs/words.md` are made from the glossary.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple


class Word(NamedTuple):
    """A term, one sentence that defines it, and where it is shown: a panel with its key, or a command."""

    term: str
    sentence: str
    where: str


_WORDS_TEXT = """\
annotation | lanes
    A range of time that the code named with record_function, or that PyTorch named.
aten op | lanes
    A PyTorch operator on the CPU, such as aten::mm; it may call others and launch kernels.
attach | attach
    Record a program that is already running, from outside and without a restart of it.
block | kernel panel (k): launch
    A group of threads that runs on one SM; a kernel starts as a grid of equal groups.
cold call | cheatsheet (c): cold-call; labels (x)
    A runtime call of 1 ms or more, far above its usual time, because something is loaded or allocated.
collective | lanes; table (t): arrivals
    An exchange of data in which several GPUs take part, such as an all-reduce; it ends when all have arrived.
communication-bound | verdict; check
    A quarter of the time or more goes to exposed collectives or to waiting for one.
compute-bound | verdict; check
    Kernels other than collectives run for at least 85 % of the time, so only faster kernels help.
cost | cheatsheet (c); check
    The time that the evidence of a finding takes and no narrower finding explains; a fix saves that at most.
CPU-only trace | verdict; check
    A trace in which no GPU work was recorded; the verdict then explains the CPU time.
critical path | lanes (C); critical-path
    The chain of work in which each part waits for the one before; only a shorter one makes the step shorter.
CUDA graph | cheatsheet (c): graph-replay
    A recorded series of GPU work that one call launches again, without the cost of single launches.
decode | ruler; table (t): b; info
    A step of a serving engine that computes the next token of each sequence; D32 on the ruler: of 32.
desync | hang
    Ranks that call different collectives, or in another order, so that all of them wait for ever.
dispatch | cheatsheet (c); labels (x)
    The time that the CPU spends inside ops and runtime calls before it launches the next GPU work.
dispatch chain | chain panel (l); chain
    The path from a step over annotations, Python frames, ops and the launch to the GPU work.
evidence | cheatsheet (c)
    The events that show a finding; the lanes mark them, and n N select one after the other.
exposed | cheatsheet (c): exposed-comm
    Time in which a collective runs while no kernel computes on that GPU, so that the step gets longer.
finding | cheatsheet (c); check
    The answer of one pattern for one scope: found with its numbers, not present, or undetermined.
flame graph | flame graph (F); export --folded
    Calls with the same path of frames as one box, as wide as their time; boxes below it are what it calls.
flight recorder | hang; run --watch-hang
    The last collectives of a rank, which torch keeps with sizes, states and stacks, written when a job hangs.
footprint | kernel panel (k); chain
    What one kernel takes of the GPU: grid, block, registers, shared memory, and the resulting occupancy.
GEMM | kernel panel (k); table (t)
    A matrix product (general matrix multiply), the kernel that does most of the arithmetic in many models.
GPU busy | title; verdict; range panel (m)
    The share of time in which a kernel, a copy or a memset runs on any stream of the GPU; waits do not count.
graph break | cheatsheet (c): cache-lookup
    A place where torch.compile cannot capture the code, so that one compiled region ends there.
grid | kernel panel (k): launch
    All the blocks that one launch of a kernel starts, in up to three dimensions.
host code | cheatsheet (c); labels (x)
    What the launching thread does outside any op and runtime call, such as plain Python.
idle gap | labels (x); cheatsheet (c): idle-gap
    Time between two pieces of GPU work in which no stream of that GPU works.
input-bound | verdict; check
    For a quarter of the time or more the GPU is idle while the CPU fetches the next batch.
kernel | lanes; kernel panel (k)
    A function that runs on the GPU; the CPU launches it, and it starts some time later on a stream.
lane | explorer
    One track of the explorer: a CPU thread, a GPU stream or a counter; nested events take several lines.
launch | lanes; chain panel (l)
    The runtime call that puts GPU work into the queue of a stream; a correlation number joins the two.
launch latency | chain panel (l); chain
    The time from the start of the launching call to the start of its GPU work.
launch overhead | cheatsheet (c): tiny-kernels; labels (x): launch
    The CPU time of launching calls; with kernels shorter than it, the GPU runs out of work.
launch-bound | verdict; cheatsheet (c): overhead-bound
    Launching the work takes the CPU longer than the GPU needs to run it; the verdict says overhead-bound.
lead-in | labels (x): unknown, start of recording
    The time before the first recorded GPU work; earlier launches may still run, so it is not judged.
memory-bound | cheatsheet (c): memory-bound-elementwise
    Limited by the bytes that a kernel reads and writes, not by its arithmetic.
mixed | verdict; check
    The verdict where no single cause takes enough of the time to name the whole program after it.
occupancy | kernel panel (k); chain
    The warps that an SM can hold of this kernel at once, as a share of the warps that it could hold.
overhead-bound | verdict; check
    The GPU is busy for less than 30 % of the time, and at least half of the idle time is due to work of the CPU.
pageable memory | cheatsheet (c): pageable-copy
    Host memory that the system may move; a GPU copy from it goes through a staging buffer.
pattern | cheatsheet (c); check --list
    A rule that looks for one known cause or habit in a trace; it gives a finding with a fix.
pinned memory | kernel panel (k): moves
    Host memory that stays in place, so that the GPU can copy it directly while the CPU works on.
prefill | ruler; table (t): b; info
    A step of a serving engine that computes prompts; P2 on the ruler: of 2; M5: mixed with sequences.
problem | cheatsheet (c); check
    A finding that costs time which a change could save; it is red from 2 % of the time on.
process group | hang; table (t): arrivals
    The ranks that take part in a collective together; a job has one for each kind of parallelism.
queue delay | chain panel (l); chain
    The time from the end of the launching call to the start of its GPU work, spent in the stream's queue.
queued | cheatsheet (c); labels (x)
    The launch has returned and the GPU is idle, but the driver, the GPU or another stream holds the work back.
rank | lanes; info
    One process of a distributed run, as a rule with one GPU; each writes its own trace.
recompile | cheatsheet (c): recompiles
    A new compilation by torch.compile because a shape or another guarded value changed.
registers | kernel panel (k): takes
    The fastest memory of an SM, private to each thread; many per thread leave room for fewer blocks.
repetition | lanes, without steps ({ }); table (t): repetitions
    A series of kernels that occurs again and again in the same order: a token, an iteration, a layer.
roofline | cheatsheet (c): gemm-efficiency, memory-bound-elementwise
    A comparison of a kernel with two peaks of the GPU, bytes per second and operations per second.
runtime call | lanes
    A call of the CUDA or HIP library on the CPU: it launches, waits, copies or allocates.
scope | cheatsheet (c v); table (t v)
    The part of the trace that an answer is about: what is on screen, the selection, or the whole trace.
self time | details (i); table (t)
    The time of an event without the events nested in it, so that the sum counts nothing twice.
shared memory | kernel panel (k): takes
    Fast memory of an SM that the threads of one block share; large blocks of it leave room for fewer blocks.
slack | path panel (C); chain panel (l); critical-path
    How much longer work off the critical path could take before the step grows.
SM | kernel panel (k)
    A streaming multiprocessor: the part of a GPU that runs blocks; an H200 has 132 of them.
steady state | cheatsheet (c): not-warmed-up
    The part of a run in which every step takes about the same time, after loading and first calls.
step | lanes; { } go through them
    One iteration of the program's loop, which the program reports to the profiler; named ProfilerStep#N.
straggler | cheatsheet (c): straggler; table (t): arrivals
    The rank that arrives last at collectives, so that the others wait for it.
stream | lanes
    A queue of GPU work that runs in order; work of different ones may run at the same time.
synchronisation | cheatsheet (c): sync-in-step; labels (x): sync
    A wait of the CPU until the GPU has finished, such as .item() or cudaStreamSynchronize.
tensor core | kernel panel (k); cheatsheet (c): no-tensor-core
    A unit of the SM for small matrix products; FP32 uses it only as TF32, lower precision directly.
threshold | cheatsheet (c)
    The number from which a pattern counts as found; each one is shown with its reason.
total time | details (i); table (t); tree (T)
    The time of an event from start to end, with all that is nested in it.
undetermined | cheatsheet (c); check
    The answer of a check that this trace cannot decide; the reason names what to record.
unknown | verdict; check
    The verdict where the trace says too little about most of the time.
verdict | explorer; check
    The line below the title: what the whole trace is bound by, what costs most, and what to do first.
warm-up | cheatsheet (c): not-warmed-up
    The first steps of a run, which load, compile and allocate; leave them out of a recording.
warp | kernel panel (k)
    32 threads of a block that run together; many AMD GPUs have 64, called a wavefront.
wave | kernel panel (k): grid
    As many blocks as the whole GPU holds at once; a grid runs in several, and the last may be partly empty.
"""
"""Each word with the place that shows it, and the sentence below."""


def _parse_words(text: str) -> tuple[Word, ...]:
    lines = text.splitlines()
    heads = (head.split(" | ") for head in lines[::2])
    return tuple(Word(term, line.strip(), where) for (term, where), line in zip(heads, lines[1::2], strict=True))


GLOSSARY = _parse_words(_WORDS_TEXT)


def find_word(term: str) -> Word:
    """Return the entry of a term. Raises KeyError for a term that is not in the glossary."""
    return _WORDS[term]


def format_words_page() -> str:
    """Format the glossary as the Markdown page `docs/words.md`."""
    rows = "\n".join(f"| {word.term} | {word.sentence} | {word.where} |" for word in GLOSSARY)
    return f"{PAGE_HEAD}\n| word | meaning | where |\n|---|---|---|\n{rows}\n"


_WORDS = {word.term: word for word in GLOSSARY}

PAGE_HEAD = """\
# Words

One sentence for each word that the screens and the commands use. In the app: `?`, then the page "Words"; type to
filter. This page is generated: `python -m torchprof_tui.ui.common.glossary > docs/words.md`.
"""


@dataclass(frozen=True, slots=True)
class Guide:
    """A guide's title, its lines as (what is shown, what it means), and terms of the glossary."""

    title: str
    lines: tuple[tuple[str, str], ...]
    terms: tuple[str, ...] = ()


_GUIDES_TEXT = """\
details | Panel: details | self time, total time, launch
    name: the full name of the selected event, then its kind and what that kind is
    time: its duration, its self time if other events are nested in it, and its start
    lane: the thread or stream, and the nesting depth of the event
    within: its parent, its start after that of the parent, and its share of the parent's time
    alike: all events of the same name: their number, shortest, median, longest, sum
    link: the call that launched it, or the GPU work that it launched; ] and [ go there
    args: the args that the profiler recorded with it, as in the file
chain | Panel: chain | dispatch chain, launch latency, queue delay, self time
    first line: launch latency and queue delay of the GPU work, and the work before it in the queue
    rows: the path from the step down to the launch, then ⇢ the GPU work; ▶ is the selected event
    after: the start of a row, after the start of the first row
    total, self: the row's duration, with and without its children
    line: the line of the program that led here, if Python stacks were recorded; enter opens it
    kernel: the footprint of the kernel at the end; k shows all of it
    GPU work: all work that the selected op launched, longest first
kernel | Panel: kernel | footprint, occupancy, SM, warp, wave, registers, shared memory
    launch: the grid of blocks and the threads per block of the launch
    takes: registers of each thread and shared memory of each block
    occupancy: computed from the launch: the warps of this kernel that fit on an SM, of the maximum
    limited by: the resource that allows the fewest blocks on an SM; ◀ marks it in the list
    grid: the number of waves of the grid, and how full the last one is
    what if: a smaller footprint with which more blocks would fit
    runs: the durations of all runs of this kernel, and when this one ran
    moves, speed: for a copy: source, target, bytes, and the share of the peak bandwidth
cheatsheet | Panel: cheatsheet | scope, pattern, finding, evidence, cost, verdict, undetermined
    first line: the scope, and how many patterns are problems, notes, not present, undetermined
    verdict: what limits the scope and what to do first; below it, how its time divides
    ● ○ ·: a problem that costs 2 % of the time or more; a note; an effect of the profiler
    numbers: the time that a fix could save, and its share of the scope
    measured: measured: the numbers here; meaning: why it matters; fix: what to change
    rule: how the pattern is decided, with the thresholds and the reason for each
    evidence: the events that show it: enter fits the first, n N go through them
    ?: patterns that this trace cannot decide, with the reason
range | Panel: range | GPU busy, self time, step
    first line: the length, start and end of the marked range; m sets its end
    busy: the share of the range in which each GPU worked, and the steps in the range
    GPU time: the names with most GPU time in the range: time, number of runs, mean
    CPU self time: the names with most CPU self time
    lane: the share of the range in which each lane was busy, and its events
path | Panel: critical path | critical path, slack, step, queue delay
    replay error: how far the recorded dependencies explain the time; above 5 %: what is missing
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
    below: the current row: its instances, callers and callees; , and . choose an instance
    last line: the number of rows, the scope, and the totals that the shares refer to
diff | Comparison | step, self time, launch, pattern
    first lines: how much longer a step of B is than one of A, beyond the noise or not; the largest cause
    lanes: A above B: the same distance from the start of the compared step is in the same column
    + - *: an event begins with + if it is only in B, - only in A, * other names or GPU work at its place
    M: aligns both at the selected op, so what follows it is compared; again: at the step's start
    account: the parts of a step: each bar moves the time from A's to B's; ~ is within the noise
    rows: ops matched along the call tree, by the size of their change; b: kernels, modules, classes
    remarks: causes with their lines, what was recorded differently, patterns of one side, left out steps
    1 2: the whole explorer of A or B at the event, with all panels; esc comes back
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
memory | Memory
    curve: allocated bytes over time, stacked by category; each cell shows its highest moment
    ▼ peak, ╌: the most that is allocated in the trace; reserved memory, where it is recorded
    │: the cursor, ← →: all below the curve is at its time; p moves it to the peak
    rows: one allocation each, the largest first; its bar is its lifetime, ◀ ▶ where it goes on
    before, end: allocated before the recording; never freed in it
    groups: what is alive at the cursor by category, op, module, line, phase or shape (tab)
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
    cases: samples with questions, a few minutes each; ✓: how many were as expected
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


GUIDES = _parse_guides(_GUIDES_TEXT)
"""By panel of the explorer, and by screen for the others."""

if __name__ == "__main__":
    print(format_words_page(), end="")
