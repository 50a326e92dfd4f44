"""Every threshold of the patterns and the verdict, with the reason for its value. Times in ns."""

from __future__ import annotations

from torchprof_tui.analysis.patterns.engine.threshold import Threshold

_US = 1000
_MS = 1000 * _US


def _threshold(name: str, value: float, unit: str, reason: str) -> Threshold:
    return Threshold(name, value, unit, reason)


SIGNIFICANT_SHARE = _threshold(
    "problem worth a red mark", 0.005, "share", "no change to the program can be measured by half a percent of its time"
)
GPU_BUSY_LOW = _threshold(
    "GPU busy below", 0.30, "share", "below a third the GPU mostly waits: faster kernels win little"
)
GPU_BUSY_HIGH = _threshold(
    "GPU busy above", 0.85, "share", "above it, filling all remaining gaps wins less than a fifth"
)
OVERHEAD_SHARE_OF_IDLE = _threshold(
    "idle due to the CPU", 0.50, "share", "most of what the GPU waited for must be dispatch or host code"
)
BOUND_SHARE = _threshold(
    "bound by input or communication", 0.25, "share", "a quarter of the time, the largest single thing to win"
)
COMPUTE_SHARE_OF_BUSY = _threshold(
    "kernels in busy time", 0.50, "share", "a GPU that mostly copies is busy, but not computing"
)
HOTSPOT_SHARE = _threshold(
    "share of GPU time", 0.40, "share", "halving this one kernel then saves a fifth of all GPU time"
)
CALLS_PER_STEP = _threshold(
    "calls in a step", 100, "calls", "a model has dozens of layers: below that, a call per layer is normal"
)
CALLS_SHARE = _threshold(
    "self time of all calls", 0.10, "share", "less than a tenth of the scope is not worth a rewrite"
)
CALLS_MEAN_MAX = _threshold(
    "mean self time of a call", 20 * _US, "ns", "longer calls are dear each: their number is not the point"
)
TOTAL_OVER_SELF_RATIO = _threshold("total over self", 5, "times", "four fifths of the time lie below the row")
CHILDREN_TOP_ROWS = _threshold("rows looked at", 5, "rows", "the five largest totals are looked at")
FIRST_STEP_RATIO = _threshold(
    "first step over the others' median", 1.5, "times", "steps of one run rarely differ by half; a cold start does"
)
WIDE_AGAIN = _threshold(
    "a later step over the first",
    0.33,
    "times",
    "a checkpoint or a log: pauses of a kind differ by two or three times",
)
WIDE_STEPS_SHARE = _threshold(
    "others as wide as the first", 0.10, "share", "a cold start happens once: what recurs is something else"
)
MIN_OTHERS = _threshold(
    "others to compare with", 2, "steps", "with one other step nothing says which of the two is normal"
)
DEAD_WINDOW_RATIO = _threshold(
    "gap over the others' median", 5, "times", "Python between two ops varies by two or three times, not five"
)
DEAD_WINDOW_MIN = _threshold(
    "shortest gap", 20 * _US, "ns", "below it lies the usual cost of entering a range and an op"
)
HIDDEN_COPY_SHARE = _threshold(
    "hidden copies' share of the time",
    0.01,
    "share",
    "every training step has some: next to nothing is won by avoiding copies that take less, or that an idle GPU makes",
)
ONE_OFF_RATIO = _threshold(
    "gap over the others' median", 5, "times", "the same launches vary by two or three times, not five"
)
ONE_OFF_MIN = _threshold("shortest gap", 10 * _US, "ns", "a launch takes about that long: shorter gaps are its jitter")
VARIANCE_RATIO = _threshold(
    "(p95 − p5) / median", 0.15, "share", "clocks that step down once move a kernel by a tenth; more is news"
)
VARIANCE_MIN_RUNS = _threshold("runs of a kernel", 3, "runs", "a spread needs more than two values")
VARIANCE_MIN_SPREAD = _threshold(
    "p95 − p5", 1 * _US, "ns", "timestamps tick in 32 ns: a kernel of 1 µs always seems to vary"
)
VARIANCE_SHARE = _threshold(
    "share of GPU time", 0.01, "share", "a kernel that takes less changes nothing, however it varies"
)
TENSOR_CORE_SHARE = _threshold(
    "share of GPU time", 0.05, "share", "a small FP32 matmul can be on purpose, and wins nothing"
)
INPUT_SHARE = _threshold(
    "idle in the input pipeline", 0.10, "share", "a tenth of the time is what workers could win back at least"
)
HOST_CODE_SHARE = _threshold(
    "code outside any op", 0.10, "share", "the Python between the ops of a plain loop takes some percent"
)
INPUT_WITHOUT_LOADER_MIN = _threshold(
    "no op at a step's start",
    500 * _US,
    "ns",
    "no recorded loader says so: shorter pauses are Python between two steps",
)
IDLE_MIN = _threshold(
    "shortest gap", 10 * _US, "ns", "a launch takes about that long: shorter gaps cannot be closed by the CPU"
)
IDLE_SHARE = _threshold("idle in such gaps", 0.10, "share", "less than a tenth is what every program has")
IDLE_MIN_GAPS = _threshold("gaps", 3, "gaps", "once or twice is an accident; three times recurs")
IDLE_STEPS_SHARE = _threshold(
    "steps with such gaps", 0.5, "share", "what only a few steps have is no habit of the program"
)
PROMPT_START = _threshold(
    "from launch to a first start", 100 * _US, "ns", "an idle GPU starts even a graph sooner: else something ran before"
)
COLD_CALL_MIN = _threshold("cold call", 1 * _MS, "ns", "a launch takes some µs; loading a module takes milliseconds")
TINY_KERNEL_MAX = _threshold(
    "median kernel", 5 * _US, "ns", "about what one launch costs the CPU: shorter kernels cannot keep up"
)
TINY_KERNEL_MIN_COUNT = _threshold("kernels of one op", 24, "kernels", "two dozen launches where one would do")
PAGEABLE_MIN = _threshold(
    "bytes of a copy", 64 * 1024, "bytes", "CUDA stages pageable copies up to 64 KiB at once: pinning would not show"
)
EXPOSED_SHARE = _threshold(
    "exposed communication", 0.10, "share", "a tenth of the time is what overlap could win back at least"
)
STRAGGLER_SHARE = _threshold(
    "waiting for the last rank", 0.10, "share", "ranks never arrive together; a tenth of the time is too much"
)
STRAGGLER_MIN = _threshold("spread of starts", 100 * _US, "ns", "clocks of several GPUs agree to some tens of µs")
WAITING_SHARE_OF_EXPOSED = _threshold(
    "waiting in exposed communication", 0.50, "share", "above half, the late rank is more to win than all overlap"
)
STRAGGLER_SHARE_OF_WAITING = _threshold(
    "waiting that is for one rank", 0.50, "share", "below half, another one is late as often: no one rank is to blame"
)
WRAPPER_SHARE = _threshold(
    "wrappers' share of the steps", 0.20, "share", "a fifth of the CPU's time goes into guards and wrappers"
)
LOST_ENTRIES_SHARE = _threshold(
    "entries that were lost", 0.01, "share", "so few, if they are counted, cannot make a busy GPU look idle"
)
ADVICE_MIN_IDLE_SHARE = _threshold(
    "idle worth a word", 0.15, "share", "what the verdict names first must win back at least that"
)
WAIT_WORTH_A_WORD = _threshold("wait worth a word", 0.05, "share", "a GPU that waits less is limited by its own work")
PROBLEM_MIN_SHARE = _threshold(
    "problem worth the first word", 0.05, "share", "less is noise in a verdict; the cheatsheet lists it"
)
EXPLAINED_SHARE_OF_WAIT = _threshold(
    "share of the wait that a pattern explains", 0.30, "share", "a third with a name is worth more than the rest"
)
HOST_PAUSE_MIN = _threshold(
    "host code in one gap", 500 * _US, "ns", "Python between two ops takes tens of µs: half a millisecond is a place"
)
HOST_OWNER_SHARE = _threshold(
    "host code in one frame or annotation", 0.30, "share", "a third with a name is worth saying; less is spread out"
)
COLD_SHARE = _threshold("cold calls", 0.25, "share", "a quarter of the time was spent on what happens once")
UNKNOWN_SHARE = _threshold(
    "time of which nothing is known", 0.60, "share", "what is known of the rest would be a guess about the program"
)
MEMORY_BOUND_SHARE = _threshold(
    "share of GPU time", 0.20, "share", "a fifth of the GPU's time in kernels that compute next to nothing"
)
MEMORY_BOUND_TIME = _threshold(
    "share of the time", 0.10, "share", "on a GPU that mostly waits, faster kernels win nothing"
)
MEMORY_BOUND_WIN = _threshold("time to win, share of the time", 0.01, "share", "less is not worth a rewrite")
PRODUCT_EFFICIENCY_LOW = _threshold(
    "share of the peak", 0.30, "share", "large products reach 60 to 80 %: below half of that the shape is at fault"
)
PRODUCT_EFFICIENCY_GOOD = _threshold(
    "share of the peak that can be reached", 0.60, "share", "what well-shaped products reach; the rest is no loss"
)
PRODUCT_SHARE = _threshold(
    "share of GPU time", 0.10, "share", "less than a tenth in slow products is not worth another shape"
)
PRODUCT_TIME = _threshold(
    "time to win, share of the time", 0.01, "share", "on a GPU that mostly waits, faster products win nothing"
)
PRODUCT_KNOWN_SHARE = _threshold(
    "products whose rate is known", 0.50, "share", "with less, the products that were not measured decide"
)
TAIL_SHARE = _threshold(
    "tails' share of the time", 0.05, "share", "every grid has some tail; a twentieth is worth a size"
)
TAIL_MAX_WAVES = _threshold("waves", 4, "waves", "of more waves, an almost empty last one costs less than a quarter")
TAIL_KERNELS = _threshold("kernels looked at", 12, "kernels", "the heaviest: nobody tunes lighter ones")
CONVERSION_SHARE = _threshold(
    "share of GPU time", 0.05, "share", "conversions compute nothing; a twentieth is worth a change of type or layout"
)
CONVERSION_TIME = _threshold(
    "share of the time", 0.01, "share", "on a GPU that mostly waits, less is not worth a change"
)
LEAD_IN_MIN_STEPS = _threshold("steps", 3, "steps", "a first step is compared with two others at least")
LEAD_IN_SHARE = _threshold(
    "idle time after the first step", 0.50, "share", "most of the idle time was there before the program had got going"
)
FEW_KERNELS = _threshold("kernels a step", 10, "kernels", "so few calls are a measurement of one op, not of a model")
COLD_CALL_SHARE = _threshold("cold calls' share", 0.01, "share", "a hundredth of the scope is not worth a word")
COLD_CALL_BUSY_SHARE = _threshold(
    "GPU busy during the call", 0.50, "share", "a launch that lasts while the GPU works waits for room in its queue"
)
COLD_WINDOW_SHARE = _threshold(
    "cold calls in a recording", 0.25, "share", "a quarter of the time is gone at the second run: it shows another one"
)
WARMING_STEP_RATIO = _threshold(
    "a step over the one before", 0.90, "times", "steady steps differ by a few percent, in both directions"
)
WARMING_TOTAL_RATIO = _threshold(
    "first step over the last that got faster", 1.5, "times", "steps of one run rarely differ by half"
)
WARMING_MIN_STEPS = _threshold("steps in a row", 3, "steps", "two steps differ by accident; three in order rarely do")
FRAME_COST = _threshold(
    "cost of a Python frame",
    2 * _US,
    "ns",
    "measured: a GPT-2 step of 3,874 frames took 44 to 51 ms with stacks and 36.5 ms without, 2 to 4 µs a frame",
)
INFLATION_SHARE = _threshold(
    "estimated inflation", 0.10, "share", "a tenth of the time: above what runs of one program differ by"
)
TOKEN_LOOP_MIN = _threshold("iterations of a loop", 3, "tokens", "two calls of a model are not yet a loop over tokens")
TOKEN_LOOP_SPREAD = _threshold(
    "kernels of an iteration against the median", 0.25, "share", "each token runs the same layers; a prefill differs"
)
DECODE_MIN_KERNELS = _threshold(
    "kernels of an iteration", 24, "kernels", "two dozen launches cost the CPU a tenth of a millisecond and more"
)
GRAPH_SHARE = _threshold(
    "kernels launched by graphs", 0.50, "share", "above half, the launches of single kernels are no longer the cost"
)
GRAPH_COPY_SHARE = _threshold(
    "copies into graph inputs", 0.02, "share", "a copy of a few tensors is the price of every replay"
)
EXPERT_LOOP_MIN = _threshold("experts in a loop", 8, "experts", "a few masked branches are no mixture of experts")
OPTIMIZER_MIN_LAUNCHES = _threshold(
    "launches of one optimizer step", 24, "kernels", "foreach and fused steps launch about a dozen for any model"
)
PAUSE_MIN = _threshold(
    "shortest pause", 5 * _MS, "ns", "the scheduler of a busy machine takes away a millisecond or two"
)
GC_MIN = _threshold("shortest collection", 1 * _MS, "ns", "collections of young objects take less, and are many")
PAUSE_STEPS_SHARE = _threshold(
    "steps with a pause at the same op", 0.50, "share", "what most steps have is code of the program, no accident"
)
SLOW_HOST_RATIO = _threshold(
    "an op over the fastest rank's", 1.15, "times", "hosts of one type differ by a few percent; a seventh shows"
)
SLOW_HOST_OPS_SHARE = _threshold(
    "ops that are slower", 0.50, "share", "a slow host slows most ops; one slow op has a cause of its own"
)
GQA_COPIES_PER_ATTENTION = _threshold(
    "expanded copies per attention", 1, "copies", "keys and values are expanded before each attention, not now and then"
)
CLOCK_RATIO = _threshold(
    "the same kernel over its fastest time", 1.08, "times", "steady clocks keep a kernel's time within a few percent"
)
CLOCK_MIN_RUNS = _threshold("runs of a kernel", 12, "runs", "four in each third, so that one odd run does not decide")
CLOCK_MIN_DURATION = _threshold(
    "shortest kernel", 20 * _US, "ns", "shorter kernels vary with launches and caches, not with clocks"
)
CLOCK_COVERED_SHARE = _threshold(
    "GPU time of the compared kernels", 0.20, "share", "a few kernels alone do not show what the clocks did"
)
TRANSFER_BANDWIDTH_MIN = _threshold(
    "bytes of an all-gather over its time", 10, "GB/s", "PCIe carries 20 and more: below half of that it mostly waits"
)
LARGE_MESSAGE = _threshold(
    "mean message", 1 << 20, "bytes", "below a megabyte the latency of the ring takes the time, not the bytes"
)
TURNS_OVERLAP = _threshold(
    "work of several GPUs at the same time", 0.20, "share of the work", "GPUs that work in parallel take no turns"
)
TURNS_SHARE = _threshold(
    "waiting while another GPU works", 0.80, "share", "below it, something else holds a good part of the work"
)
CLOCK_MIN_STEPS = _threshold("repeated steps", 4, "steps", "the first and the last of fewer are no trend")
OP_COMPILATION_SHARE = _threshold(
    "idle time in calls that compile", 0.02, "share", "one op that is compiled now and then is not worth a switch"
)
AI_CPU_SHARE = _threshold(
    "share of NPU time", 0.05, "share", "a twentieth of the time on processors that should only control the others"
)
