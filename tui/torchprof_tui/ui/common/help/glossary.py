"""The words of the screens, one sentence each, with the place that shows or computes them.

The page "Words" of the help and `docs/words.md` are made from this list.
"""

from __future__ import annotations

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
filter. This page is generated: `python -m torchprof_tui.ui.common.help.glossary > docs/words.md`.
"""

if __name__ == "__main__":
    print(format_words_page(), end="")
