"""What a trace or a scope lacks where a pattern is undecidable, in the words that a reader sees."""

from __future__ import annotations

NO_GPU = "no GPU activity was recorded"
NO_GPU_HERE = "no GPU work in this range"
NO_CPU = "no ops were recorded on the CPU"
NO_CALLS = "no runtime calls were recorded"
NO_STEPS = "no steps were recorded: call prof.step()"
SERVING_STEPS_ONLY = "the steps are those of a serving engine, which are not judged here"
NO_LOADER_WHILE_SERVING = (
    "no data loader was recorded; a serving engine waits for requests between its steps: see scheduler-bound"
)
NOTHING_HERE = "nothing was recorded in this range"
NO_LINKS = "no launch could be matched with its GPU work"
NO_MEMORY = "no memory was recorded: profile_memory=True"
NO_ADDRESSES = "the records of memory carry no addresses: torch 2 and later record them"
