"""Name and one-sentence description of each kind of event, for the help screen and the event panel."""

from __future__ import annotations

from torchprof_tui.trace.model.event_kind import Kind

KIND_DESCRIPTIONS: dict[Kind, tuple[str, str]] = {
    Kind.OTHER: ("event", "an event of a category that torch.profiler does not use, shown as in the file"),
    Kind.STEP: ("step", "one iteration: everything between two calls of prof.step()"),
    Kind.ANNOTATION: ("annotation", "a range named in the code with record_function, or by PyTorch itself"),
    Kind.PYTHON: ("Python frame", "one call of a Python function"),
    Kind.OP: ("op", "a PyTorch operator on the CPU: it checks inputs, allocates, and launches GPU work"),
    Kind.RUNTIME: ("runtime call", "a CPU call into the driver: to launch GPU work, wait for it, or allocate memory"),
    Kind.KERNEL: ("kernel", "a function that runs on the GPU, some time after the CPU call that launched it"),
    Kind.COPY: ("copy", "a copy of bytes to, from or inside a GPU's memory"),
    Kind.MEMSET: ("memset", "a fill of GPU memory with one value"),
    Kind.COLLECTIVE: (
        "collective",
        "an exchange of data between GPUs; part of the time may be a wait for the last one",
    ),
    Kind.SYNC: ("wait", "a wait of a stream or the CPU for GPU work, without computation"),
    Kind.GPU_ANNOTATION: (
        "GPU annotation",
        "from the first to the last GPU work launched in a named range, idle time included",
    ),
    Kind.OVERHEAD: ("overhead", "work of the profiler itself; your program alone does not do it"),
    Kind.PROFILER: ("profiler", "a mark or range that the profiler recorded about itself"),
    Kind.ASYNC: ("async range", "a range with a start and an end that belongs to no thread"),
    Kind.INSTANT: ("mark", "a point in time, without a duration"),
    Kind.MEMORY: ("memory", "memory allocated or freed"),
}
