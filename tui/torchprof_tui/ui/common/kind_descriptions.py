"""Name and one-sentence description of each kind of event, for the help screen and the event panel."""

from __future__ import annotations

from torchprof_tui.trace.model.event_kind import Kind

KIND_DESCRIPTIONS: dict[Kind, tuple[str, str]] = {
    Kind.OTHER: ("event", "of a category that PyTorch's profiler does not use; shown as the file has it"),
    Kind.STEP: ("step", "one iteration: everything between two calls of prof.step()"),
    Kind.ANNOTATION: ("annotation", "a range named in the code with record_function, or by PyTorch itself"),
    Kind.PYTHON: ("Python frame", "a function for as long as it stood on the call stack"),
    Kind.OP: ("op", "a PyTorch operator on the CPU: it checks, allocates, and asks the GPU for work"),
    Kind.RUNTIME: ("runtime call", "the CPU asking the driver: to start GPU work, to wait for it, to give memory"),
    Kind.KERNEL: ("kernel", "a function running on the GPU, some time after the CPU call that launched it"),
    Kind.COPY: ("copy", "bytes moving to, from or inside a GPU's memory"),
    Kind.MEMSET: ("memset", "the GPU filling memory with one value"),
    Kind.COLLECTIVE: ("collective", "GPUs exchanging data; part of it may be waiting for the slowest of them"),
    Kind.SYNC: ("wait", "a stream or the CPU waiting for GPU work; nothing is computed"),
    Kind.GPU_ANNOTATION: (
        "GPU annotation",
        "from the first to the last GPU work launched in a named range; idle included",
    ),
    Kind.OVERHEAD: ("overhead", "the profiler's own work: your program does not do this when it is not profiled"),
    Kind.PROFILER: ("profiler", "a mark or a span that the profiler made about itself"),
    Kind.ASYNC: ("async range", "has a begin and an end, and belongs to no thread"),
    Kind.INSTANT: ("mark", "a point in time, without a duration"),
    Kind.MEMORY: ("memory", "an allocation or a free"),
}
