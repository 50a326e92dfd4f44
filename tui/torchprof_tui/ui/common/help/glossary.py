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


GLOSSARY: tuple[Word, ...] = (
    Word("annotation", "A range of time that the code named with record_function, or that PyTorch named.", "lanes"),
    Word("aten op", "A PyTorch operator on the CPU, such as aten::mm; it may call others and launch kernels.", "lanes"),
    Word(
        "block",
        "A group of threads that runs on one SM; a kernel starts as a grid of equal groups.",
        "kernel panel (k): launch",
    ),
    Word(
        "cold call",
        "A runtime call of 1 ms or more, far above its usual time, because something is loaded or allocated.",
        "cheatsheet (c): cold-call; labels (x)",
    ),
    Word(
        "collective",
        "An exchange of data in which several GPUs take part, such as an all-reduce; it ends when all have arrived.",
        "lanes; table (t): arrivals",
    ),
    Word(
        "communication-bound",
        "A quarter of the time or more goes to exposed collectives or to waiting for one.",
        "verdict; check",
    ),
    Word(
        "compute-bound",
        "Kernels other than collectives run for at least 85 % of the time, so only faster kernels help.",
        "verdict; check",
    ),
    Word(
        "cost",
        "The time that the evidence of a finding takes and no narrower finding explains; a fix saves that at most.",
        "cheatsheet (c); check",
    ),
    Word(
        "CPU-only trace",
        "A trace in which no GPU work was recorded; the verdict then explains the CPU time.",
        "verdict; check",
    ),
    Word(
        "critical path",
        "The chain of work in which each part waits for the one before; only a shorter one makes the step shorter.",
        "lanes (C); critical-path",
    ),
    Word(
        "CUDA graph",
        "A recorded series of GPU work that one call launches again, without the cost of single launches.",
        "cheatsheet (c): graph-replay",
    ),
    Word(
        "decode",
        "A step of a serving engine that computes the next token of each sequence; D32 on the ruler: of 32.",
        "ruler; table (t): b; info",
    ),
    Word(
        "dispatch",
        "The time that the CPU spends inside ops and runtime calls before it launches the next GPU work.",
        "cheatsheet (c); labels (x)",
    ),
    Word(
        "dispatch chain",
        "The path from a step over annotations, Python frames, ops and the launch to the GPU work.",
        "chain panel (l); chain",
    ),
    Word(
        "evidence",
        "The events that show a finding; the lanes mark them, and n N select one after the other.",
        "cheatsheet (c)",
    ),
    Word(
        "exposed",
        "Time in which a collective runs while no kernel computes on that GPU, so that the step gets longer.",
        "cheatsheet (c): exposed-comm",
    ),
    Word(
        "finding",
        "The answer of one pattern for one scope: found with its numbers, not present, or undetermined.",
        "cheatsheet (c); check",
    ),
    Word(
        "flame graph",
        "Calls with the same path of frames as one box, as wide as their time; boxes below it are what it calls.",
        "flame graph (F); export --folded",
    ),
    Word(
        "footprint",
        "What one kernel takes of the GPU: grid, block, registers, shared memory, and the resulting occupancy.",
        "kernel panel (k); chain",
    ),
    Word(
        "GEMM",
        "A matrix product (general matrix multiply), the kernel that does most of the arithmetic in many models.",
        "kernel panel (k); table (t)",
    ),
    Word(
        "GPU busy",
        "The share of time in which a kernel, a copy or a memset runs on any stream of the GPU; waits do not count.",
        "title; verdict; range panel (m)",
    ),
    Word(
        "graph break",
        "A place where torch.compile cannot capture the code, so that one compiled region ends there.",
        "cheatsheet (c): cache-lookup",
    ),
    Word(
        "grid",
        "All the blocks that one launch of a kernel starts, in up to three dimensions.",
        "kernel panel (k): launch",
    ),
    Word(
        "host code",
        "What the launching thread does outside any op and runtime call, such as plain Python.",
        "cheatsheet (c); labels (x)",
    ),
    Word(
        "idle gap",
        "Time between two pieces of GPU work in which no stream of that GPU works.",
        "labels (x); cheatsheet (c): idle-gap",
    ),
    Word(
        "input-bound",
        "For a quarter of the time or more the GPU is idle while the CPU fetches the next batch.",
        "verdict; check",
    ),
    Word(
        "kernel",
        "A function that runs on the GPU; the CPU launches it, and it starts some time later on a stream.",
        "lanes; kernel panel (k)",
    ),
    Word(
        "lane",
        "One track of the explorer: a CPU thread, a GPU stream or a counter; nested events take several lines.",
        "explorer",
    ),
    Word(
        "launch",
        "The runtime call that puts GPU work into the queue of a stream; a correlation number joins the two.",
        "lanes; chain panel (l)",
    ),
    Word(
        "launch latency",
        "The time from the start of the launching call to the start of its GPU work.",
        "chain panel (l); chain",
    ),
    Word(
        "launch overhead",
        "The CPU time of launching calls; with kernels shorter than it, the GPU runs out of work.",
        "cheatsheet (c): tiny-kernels; labels (x): launch",
    ),
    Word(
        "launch-bound",
        "Launching the work takes the CPU longer than the GPU needs to run it; the verdict says overhead-bound.",
        "verdict; cheatsheet (c): overhead-bound",
    ),
    Word(
        "lead-in",
        "The time before the first recorded GPU work; earlier launches may still run, so it is not judged.",
        "labels (x): unknown, start of recording",
    ),
    Word(
        "memory-bound",
        "Limited by the bytes that a kernel reads and writes, not by its arithmetic.",
        "cheatsheet (c): memory-bound-elementwise",
    ),
    Word(
        "mixed",
        "The verdict where no single cause takes enough of the time to name the whole program after it.",
        "verdict; check",
    ),
    Word(
        "occupancy",
        "The warps that an SM can hold of this kernel at once, as a share of the warps that it could hold.",
        "kernel panel (k); chain",
    ),
    Word(
        "overhead-bound",
        "The GPU is busy for less than 30 % of the time, and at least half of the idle time is due to work of the CPU.",
        "verdict; check",
    ),
    Word(
        "pageable memory",
        "Host memory that the system may move; a GPU copy from it goes through a staging buffer.",
        "cheatsheet (c): pageable-copy",
    ),
    Word(
        "pattern",
        "A rule that looks for one known cause or habit in a trace; it gives a finding with a fix.",
        "cheatsheet (c); check --list",
    ),
    Word(
        "pinned memory",
        "Host memory that stays in place, so that the GPU can copy it directly while the CPU works on.",
        "kernel panel (k): moves",
    ),
    Word(
        "prefill",
        "A step of a serving engine that computes prompts; P2 on the ruler: of 2; M5: mixed with sequences.",
        "ruler; table (t): b; info",
    ),
    Word(
        "problem",
        "A finding that costs time which a change could save; it is red from 2 % of the time on.",
        "cheatsheet (c); check",
    ),
    Word(
        "queue delay",
        "The time from the end of the launching call to the start of its GPU work, spent in the stream's queue.",
        "chain panel (l); chain",
    ),
    Word(
        "queued",
        "The launch has returned and the GPU is idle, but the driver, the GPU or another stream holds the work back.",
        "cheatsheet (c); labels (x)",
    ),
    Word("rank", "One process of a distributed run, as a rule with one GPU; each writes its own trace.", "lanes; info"),
    Word(
        "recompile",
        "A new compilation by torch.compile because a shape or another guarded value changed.",
        "cheatsheet (c): recompiles",
    ),
    Word(
        "registers",
        "The fastest memory of an SM, private to each thread; many per thread leave room for fewer blocks.",
        "kernel panel (k): takes",
    ),
    Word(
        "repetition",
        "A series of kernels that occurs again and again in the same order: a token, an iteration, a layer.",
        "lanes, without steps ({ }); table (t): repetitions",
    ),
    Word(
        "roofline",
        "A comparison of a kernel with two peaks of the GPU, bytes per second and operations per second.",
        "cheatsheet (c): gemm-efficiency, memory-bound-elementwise",
    ),
    Word(
        "runtime call",
        "A call of the CUDA or HIP library on the CPU: it launches, waits, copies or allocates.",
        "lanes",
    ),
    Word(
        "scope",
        "The part of the trace that an answer is about: what is on screen, the selection, or the whole trace.",
        "cheatsheet (c v); table (t v)",
    ),
    Word(
        "self time",
        "The time of an event without the events nested in it, so that the sum counts nothing twice.",
        "details (i); table (t)",
    ),
    Word(
        "shared memory",
        "Fast memory of an SM that the threads of one block share; large blocks of it leave room for fewer blocks.",
        "kernel panel (k): takes",
    ),
    Word(
        "slack",
        "How much longer work off the critical path could take before the step grows.",
        "path panel (C); chain panel (l); critical-path",
    ),
    Word(
        "SM",
        "A streaming multiprocessor: the part of a GPU that runs blocks; an H200 has 132 of them.",
        "kernel panel (k)",
    ),
    Word(
        "steady state",
        "The part of a run in which every step takes about the same time, after loading and first calls.",
        "cheatsheet (c): not-warmed-up",
    ),
    Word(
        "step",
        "One iteration of the program's loop, which the program reports to the profiler; named ProfilerStep#N.",
        "lanes; { } go through them",
    ),
    Word(
        "straggler",
        "The rank that arrives last at collectives, so that the others wait for it.",
        "cheatsheet (c): straggler; table (t): arrivals",
    ),
    Word(
        "stream",
        "A queue of GPU work that runs in order; work of different ones may run at the same time.",
        "lanes",
    ),
    Word(
        "synchronisation",
        "A wait of the CPU until the GPU has finished, such as .item() or cudaStreamSynchronize.",
        "cheatsheet (c): sync-in-step; labels (x): sync",
    ),
    Word(
        "tensor core",
        "A unit of the SM for small matrix products; FP32 uses it only as TF32, lower precision directly.",
        "kernel panel (k); cheatsheet (c): no-tensor-core",
    ),
    Word(
        "threshold",
        "The number from which a pattern counts as found; each one is shown with its reason.",
        "cheatsheet (c)",
    ),
    Word(
        "total time",
        "The time of an event from start to end, with all that is nested in it.",
        "details (i); table (t); tree (T)",
    ),
    Word(
        "undetermined",
        "The answer of a check that this trace cannot decide; the reason names what to record.",
        "cheatsheet (c); check",
    ),
    Word("unknown", "The verdict where the trace says too little about most of the time.", "verdict; check"),
    Word(
        "verdict",
        "The line below the title: what the whole trace is bound by, what costs most, and what to do first.",
        "explorer; check",
    ),
    Word(
        "warm-up",
        "The first steps of a run, which load, compile and allocate; leave them out of a recording.",
        "cheatsheet (c): not-warmed-up",
    ),
    Word(
        "warp",
        "32 threads of a block that run together; many AMD GPUs have 64, called a wavefront.",
        "kernel panel (k)",
    ),
    Word(
        "wave",
        "As many blocks as the whole GPU holds at once; a grid runs in several, and the last may be partly empty.",
        "kernel panel (k): grid",
    ),
)


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
