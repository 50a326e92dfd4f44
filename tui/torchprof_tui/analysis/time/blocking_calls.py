"""Name the runtime calls in which a thread waits for the GPU."""

from __future__ import annotations

SYNC_CALL_REGEX = (
    r"(cuda|cu|hip|musa)(Stream|Device|Event|Ctx)Synchronize"
    r"|(cudaMemcpy|hipMemcpy|hipMemcpyWithStream|cuMemcpy(DtoH|HtoD)(_v2)?)$"
    r"|(AscendCL@)?aclrt(Synchronize|Memcpy$)|event_wait|ur(EventWait|QueueFinish)|zeEventHostSynchronize"
)
"""Calls that return only when the GPU has finished; copies without `Async` block as well."""
