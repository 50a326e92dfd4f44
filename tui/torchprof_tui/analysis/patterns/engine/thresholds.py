"""Every threshold of the patterns and the verdict, with the reason for its value. Times in ns."""

from __future__ import annotations

from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration


@record
class Threshold:
    """A number that a pattern is decided by, with its unit and the reason for its value."""

    name: str
    value: float
    unit: str
    reason: str

    @property
    def text(self) -> str:
        """The name and the value in the unit that a reader expects, then the reason."""
        return f"{self.name} {self._value_text}: {self.reason}"

    @property
    def _value_text(self) -> str:
        if self.unit == "share":
            return f"{self.value * 100:.3g} %"
        if self.unit == "ns":
            return format_duration(self.value)
        return f"{self.value:g}" if self.unit in self.name else f"{self.value:g} {self.unit}"


_US = 1000
_MS = 1000 * _US


def _share(name: str, value: float, reason: str) -> Threshold:
    return Threshold(name, value, "share", reason)


def _ns(name: str, value: float, reason: str) -> Threshold:
    return Threshold(name, value, "ns", reason)


def _times(name: str, value: float, reason: str) -> Threshold:
    return Threshold(name, value, "times", reason)


SIGNIFICANT_SHARE = _share("shown from a share of", 0.005, "less is within the noise of a measurement")
LISTED_SHARE = _share("a problem from a share of", 0.02, "two runs of one program differ by as much")
STEPS_DIFFER = _share(
    "a step over the median one", 0.25, "then no single step stands for the recording, and all are added up"
)
GPU_BUSY_LOW = _share("GPU busy below", 0.30, "the GPU is mostly idle, so faster kernels save little")
GPU_BUSY_MOSTLY = _share("GPU busy for most of the time", 0.70, "its own work is the larger part to save")
GPU_BUSY_HIGH = _share("GPU busy above", 0.85, "removing all remaining gaps would save less than a fifth")
OVERHEAD_SHARE_OF_IDLE = _share("idle due to the CPU", 0.50, "dispatch and host code must cause most of the idle time")
BOUND_SHARE = _share(
    "bound by input or communication", 0.25, "a quarter of the time is usually the largest single gain"
)
COMPUTE_SHARE_OF_BUSY = _share(
    "kernels in busy time", 0.50, "a GPU that mostly copies data is busy, but computes little"
)
HOTSPOT_SHARE = _share("share of GPU time", 0.40, "halving the time of one such kernel saves a fifth of all GPU time")
OTHER_KERNELS_SHARE = _share(
    "GPU time of other kernels", 1 / 3, "no rule applies to them, so they must be measured by themselves"
)
UNKNOWN_WORK_SHARE = _share(
    "GPU time of undecoded kernels", 0.20, "below it, unknown collectives cannot be what limits the program"
)
CPU_OP_MIN = _ns(
    "op that computes on the CPU", 100 * _US, "an op that launches nothing and only makes a view takes some µs"
)
CPU_WORK_SHARE = _share(
    "idle while ops compute on the CPU", 0.03, "less is what any program prepares between its steps"
)
CALLS_PER_STEP = Threshold(
    "calls in a step", 100, "calls", "a model has dozens of layers, and one call per layer is normal"
)
CALLS_SHARE = _share("self time of all calls", 0.10, "below a tenth of the scope, a rewrite saves too little")
CALLS_MEAN_MAX = _ns(
    "mean self time of a call", 20 * _US, "longer calls are expensive themselves; their number is not the cause"
)
TOTAL_OVER_SELF_RATIO = _times("total over self", 5, "at least four fifths of the time are spent in nested calls")
CHILDREN_TOP_ROWS = Threshold("rows checked", 5, "rows", "the five largest totals")
FIRST_STEP_LOST = _share(
    "GPU idle in what a step takes longer", 0.1, "a CPU that is late costs nothing while the GPU has work"
)
FIRST_STEP_RATIO = _times(
    "first step over the others' median", 1.5, "steps of one run rarely differ by half; a cold first step does"
)
WIDE_AGAIN = _times(
    "a later step over the first", 0.33, "recurring pauses, such as checkpoints, differ by up to three times"
)
WIDE_STEPS_SHARE = _share(
    "other steps as long as the first", 0.10, "a cold start happens once; pauses that recur have another cause"
)
MIN_OTHERS = Threshold("others to compare with", 2, "steps", "with only two it is unclear which one is normal")
DEAD_WINDOW_RATIO = _times(
    "gap over the others' median", 4, "of 266 later occurrences in real traces 99 % take at most 2.2 times the median"
)
DEAD_WINDOW_MIN = _ns("shortest gap", 10 * _US, "entering a range and its first op takes 4 to 10 µs once it is warm")
HIDDEN_COPY_SHARE = _share(
    "hidden copies' share of the time", 0.01, "every training step has some; avoiding fewer saves almost nothing"
)
ONE_OFF_RATIO = _times(
    "gap over the others' median", 5, "gaps between the same launches vary by two or three times, not five"
)
ONE_OFF_MIN = _ns("shortest gap", 10 * _US, "a launch takes about that long; shorter gaps are normal variation")
VARIANCE_RATIO = _share(
    "(p95 − p5) / median", 0.15, "one step of the GPU's clock changes a kernel's time by about a tenth"
)
VARIANCE_MIN_RUNS = Threshold("runs of a kernel", 3, "runs", "a spread needs at least three values")
VARIANCE_MIN_SPREAD = _ns(
    "p95 − p5", 1 * _US, "timestamps have a resolution of 32 ns, so a kernel of 1 µs always seems to vary"
)
VARIANCE_SHARE = _share(
    "share of GPU time", 0.01, "a kernel below this share hardly changes the total, however it varies"
)
TENSOR_CORE_SHARE = _share(
    "share of GPU time", 0.05, "a small FP32 matmul can be intended, and changing it saves little"
)
INPUT_SHARE = _share("GPU idle during input", 0.10, "loader workers could save at least a tenth of the time")
HOST_CODE_SHARE = _share("code outside any op", 0.10, "the Python between the ops of a plain loop takes some percent")
OPTIMIZER_SHARE = _share(
    "optimizer's share for a fused one", 0.10, "one kernel instead of many saves a part of this share only"
)
RECURRING_RATE = _share(
    "fewest calls in a step over most", 0.5, "what is loaded or created once does not come again in each step"
)
ALLOCATOR_OFF_CALLS = Threshold(
    "allocations from the driver in a step", 20, "calls", "a caching allocator asks for a few large segments"
)
ALLOCATOR_OFF_TURNS = _share(
    "changes between allocating and freeing, over calls", 0.2, "a cache that is emptied is freed at one place"
)
INPUT_STEPS_SHARE = _share(
    "steps that wait before their first op", 0.5, "input is read in each step; a pause comes now and then"
)
INPUT_WITHOUT_LOADER_MIN = _ns(
    "no op at a step's start",
    500 * _US,
    "without a recorded loader, shorter pauses are ordinary Python between two steps",
)
IDLE_MIN = _ns("shortest gap", 10 * _US, "a launch takes about that long, so the CPU cannot avoid shorter gaps")
IDLE_SHARE = _share("idle in such gaps", 0.10, "every program has up to a tenth")
IDLE_MIN_GAPS = Threshold("gaps", 3, "gaps", "one or two gaps can be chance")
IDLE_STEPS_SHARE = _share("steps with such gaps", 0.5, "a cause inside the loop shows in most steps")
PROMPT_START = _ns(
    "from launch to a first start",
    100 * _US,
    "an idle GPU starts even a graph sooner; after a longer delay, other work ran before",
)
COLD_CALL_MIN = _ns("cold call", 1 * _MS, "a launch takes some µs; loading a module takes milliseconds")
TINY_KERNEL_MAX = _ns(
    "median kernel", 5 * _US, "one launch costs the CPU about that long; shorter kernels leave the GPU idle"
)
TINY_KERNEL_MIN_COUNT = Threshold(
    "kernels of one op", 24, "kernels", "two dozen launches that one fused kernel could replace"
)
PAGEABLE_MIN = Threshold(
    "bytes of a copy",
    64 * 1024,
    "bytes",
    "CUDA stages pageable copies of up to 64 KiB at once, so pinning saves nothing",
)
EXPOSED_SHARE = _share("exposed communication", 0.10, "overlap could save at least a tenth of the time")
STRAGGLER_SHARE = _share(
    "waiting for the last rank", 0.10, "ranks never arrive at exactly the same time; a tenth of the time is too much"
)
STRAGGLER_MIN = _ns("spread of starts", 100 * _US, "clocks of several GPUs agree to some tens of µs")
WAITING_SHARE_OF_EXPOSED = _share(
    "waiting in exposed communication", 0.50, "above half, a faster late rank saves more than any overlap"
)
STRAGGLER_SHARE_OF_WAITING = _share("waiting for the same rank", 0.50, "below half, the other ranks are late as often")
WRAPPER_SHARE = _share("wrappers' share of the steps", 0.20, "below a fifth, guards and wrappers are a normal cost")
LOST_ENTRIES_SHARE = _share("lost entries", 0.01, "losing so few entries cannot make a busy GPU look idle")
ADVICE_MIN_IDLE_SHARE = _share("idle time to report", 0.15, "the first advice of the verdict must save at least that")
WAIT_WORTH_A_WORD = _share("wait to report", 0.05, "a GPU that waits less is limited by its own work")
PROBLEM_MIN_SHARE = _share("problem to name first", 0.05, "a smaller one is only listed in the cheatsheet")
FAULT_FIRST_SHARE = _share(
    "work without need from a share of", 0.10, "mending it saves more than most changes of what every program does"
)
COMPILED_SHARE_OF_WAIT = _share(
    "ops written out, of the wait for launches",
    1 / 8,
    "a compiler or a larger batch mends all of the wait, and these ops with it",
)
EXPLAINED_SHARE_OF_WAIT = _share(
    "share of the wait that a pattern explains", 0.30, "a known cause of a third is more useful than the rest"
)
HOST_PAUSE_MIN = _ns(
    "host code in one gap", 500 * _US, "Python between two ops takes tens of µs; a longer pause has a cause of its own"
)
HOST_OWNER_SHARE = _share(
    "host code in one frame or annotation", 0.30, "a smaller share means that the time is spread over many places"
)
COLD_SHARE = _share("cold calls", 0.25, "a quarter of the time was spent on calls that happen once")
UNKNOWN_SHARE = _share("time without a known cause", 0.60, "the rest is too little to judge the program by")
MEMORY_BOUND_SHARE = _share(
    "share of GPU time", 0.20, "a fifth of the GPU time is spent in kernels that compute almost nothing"
)
MEMORY_BOUND_TIME = _share("share of the time", 0.10, "on a GPU that is mostly idle, faster kernels save nothing")
MEMORY_BOUND_WIN = _share("possible saving, share of the time", 0.01, "less is not worth a rewrite")
PRODUCT_EFFICIENCY_LOW = _share(
    "share of the peak", 0.30, "large products reach 60 to 80 %; below half of that, the shape is the cause"
)
PRODUCT_EFFICIENCY_GOOD = _share(
    "share of the peak that can be reached",
    0.60,
    "well-shaped products reach about that share; the rest does not count as lost",
)
PRODUCT_SHARE = _share("share of GPU time", 0.10, "below a tenth, changing the shapes saves too little")
PRODUCT_TIME = _share(
    "possible saving, share of the time", 0.01, "on a GPU that is mostly idle, faster products save nothing"
)
PRODUCT_KNOWN_SHARE = _share(
    "products whose rate is known", 0.50, "below half, the products with an unknown rate decide the result"
)
TAIL_SHARE = _share("tails' share of the time", 0.05, "every grid has some tail; a twentieth is worth another size")
TAIL_MAX_WAVES = Threshold("waves", 4, "waves", "with more waves, an almost empty last one costs less than a quarter")
TAIL_KERNELS = Threshold("kernels checked", 12, "kernels", "the kernels with most GPU time; tuning others saves little")
CONVERSION_SHARE = _share(
    "share of GPU time", 0.05, "conversions compute nothing; a twentieth is worth a change of type or layout"
)
CONVERSION_TIME = _share(
    "share of the time", 0.01, "on a GPU that is mostly idle, a smaller share is not worth a change"
)
LEAD_IN_MIN_STEPS = Threshold("steps", 3, "steps", "the first step is compared with at least two others")
LEAD_IN_SHARE = _share(
    "idle time after the first step", 0.50, "most of the idle time comes from the start of the program"
)
FEW_KERNELS = Threshold("kernels a step", 10, "kernels", "with so few calls, the program measures one op, not a model")
COLD_CALL_SHARE = _share("cold calls' share", 0.01, "less than a hundredth of the scope is not worth reporting")
COLD_CALL_BUSY_SHARE = _share(
    "GPU busy during the call", 0.50, "a long launch during GPU work waits for space in the queue"
)
COLD_WINDOW_SHARE = _share(
    "cold calls in a recording", 0.25, "a second run would be a quarter faster, so this one is not typical"
)
WARMING_STEP_RATIO = _times(
    "a step over the one before", 0.90, "steady steps differ by a few percent, in both directions"
)
WARMING_TOTAL_RATIO = _times("first step over the last that got faster", 1.5, "steps of one run rarely differ by half")
WARMING_MIN_STEPS = Threshold(
    "steps in a row", 3, "steps", "two steps can differ by chance; three in decreasing order rarely do"
)
FRAME_COST = _ns(
    "cost of a Python frame",
    2 * _US,
    "measured: a GPT-2 step of 3,874 frames took 44 to 51 ms with stacks and 36.5 ms without, 2 to 4 µs a frame",
)
INFLATION_SHARE = _share("estimated inflation", 0.10, "runs of one program usually differ by less than a tenth")
TOKEN_LOOP_MIN = Threshold("iterations of a loop", 3, "tokens", "two calls of a model are not a loop over tokens")
TOKEN_LOOP_SPREAD = _share(
    "kernels that an iteration does not share with the median one",
    0.25,
    "every token runs the same layers; a prefill runs other kernels",
)
DECODE_MIN_KERNELS = Threshold(
    "kernels of an iteration", 24, "kernels", "two dozen launches cost the CPU a tenth of a millisecond or more"
)
GRAPH_SHARE = _share(
    "kernels launched by graphs", 0.50, "above half, launches of single kernels are no longer the main cost"
)
GRAPH_COPY_SHARE = _share("copies into graph inputs", 0.02, "every replay copies a few tensors")
PADDING_SHARE = _share(
    "sequences that are padding", 0.15, "capture sizes in steps of eight leave a few rows empty in any case"
)
MIXED_RATIO = _times("a step with prompts over a decode step", 2, "a reader of the text notices no shorter pause")
MIXED_SHARE = _share("tokens held up", 0.10, "below a tenth of the time, prompts rarely hold up a token")
SCHEDULER_RATIO = _times(
    "pause over the GPU time of a step", 0.50, "then a third of the time or more is lost between steps"
)
PLANNING_RATIO = _times(
    "an attention call over their median", 10, "calls of the same op vary by two or three times, not ten"
)
TOKEN_SYNC_SHARE = _share(
    "idle time because of the waits", 0.02, "the tokens of a step are read by every engine, which costs little"
)
EXPERT_LOOP_MIN = Threshold("experts in a loop", 8, "experts", "a few masked branches are not a mixture of experts")
OPTIMIZER_MIN_LAUNCHES = Threshold(
    "launches of one optimizer step", 24, "kernels", "foreach and fused steps launch about a dozen for any model"
)
CONSTANT_MIN_COUNT = _times("times in a step", 3, "a mask for each of two stacks (encoder, decoder) is a model's own")
EQUAL_COPIES_MIN = _times("copies of one size in a step", 4, "a batch has a few parts of equal size")
SMALL_COPY_BYTES = Threshold(
    "a copy is small below", 65536, "bytes", "the fixed cost of a copy is then larger than its time on the bus"
)
LIST_TENSOR_MIN = _ns("a tensor from a list takes at least", 100 * _US, "a few numbers take some microseconds")
FEW_BLOCKS_SHARE = _share("blocks below this share of the SMs", 0.25, "three quarters of the GPU have nothing to do")
LONG_KERNEL = _ns("a kernel takes at least", 50 * _US, "short ones are limited by their launch")
ROWS_PER_TARGET = _times("rows for each target", 256, "below, few of the threads that run at once share a target")
OP_LOOP_MIN_ROUNDS = Threshold(
    "rounds in a row", 16, "rounds", "a dozen branches or heads in a list are a model's own; a loop over items has more"
)
OP_LOOP_LAYER_MIN_ROUNDS = Threshold(
    "rounds in a row, with ops of layers", 100, "rounds", "a hundred equal layers are rare; a loop over time has more"
)
OP_LOOP_MEAN_MAX = _ns(
    "mean time of an op in the loop", 100 * _US, "a call costs some tens of µs: longer ops are work, not calls"
)
OP_LOOP_BUSY_MAX = _share(
    "GPU busy during the loop", 0.50, "a GPU that works for most of the loop is not kept waiting by it"
)
PAUSE_MIN = _ns("shortest pause", 5 * _MS, "on a busy machine the scheduler causes pauses of a millisecond or two")
GC_MIN = _ns("shortest collection", 1 * _MS, "collections of young objects are shorter and frequent")
PAUSE_STEPS_SHARE = _share(
    "steps with a pause at the same op", 0.50, "a pause in most steps comes from the program's code"
)
SLOW_HOST_RATIO = _times("an op over the fastest rank's", 1.15, "hosts of one type differ by a few percent")
SLOW_HOST_OPS_SHARE = _share(
    "ops that are slower", 0.50, "a slow host slows most ops; one slow op has a cause of its own"
)
GQA_COPIES_PER_ATTENTION = Threshold(
    "expanded copies per attention", 1, "copies", "keys and values are expanded before every attention"
)
CLOCK_RATIO = _times(
    "the same kernel over its fastest time", 1.08, "steady clocks keep a kernel's time within a few percent"
)
CLOCK_MIN_RUNS = Threshold(
    "runs of a kernel", 12, "runs", "four in each third, so that one unusual run does not decide"
)
CLOCK_MIN_DURATION = _ns("shortest kernel", 20 * _US, "shorter kernels vary with launches and caches, not with clocks")
CLOCK_COVERED_SHARE = _share(
    "GPU time of the compared kernels", 0.20, "a few kernels are not enough to judge the clock"
)
TRANSFER_BANDWIDTH_MIN = Threshold(
    "bytes of an all-gather over its time",
    10,
    "GB/s",
    "PCIe reaches 20 or more; below half of that, the collective mostly waits",
)
LARGE_MESSAGE = Threshold("mean message", 1 << 20, "bytes", "below a megabyte, latency takes more time than the bytes")
REDUCES_PER_GRADIENT = _times(
    "all-reduces per gradient", 0.8, "a bucket holds dozens of gradients: with buckets there are far fewer"
)
REDUCES_PER_STEP = Threshold("all-reduces a step", 24, "all-reduces", "so few cost about a launch each")
SMALL_REDUCE_MAX = _ns("median all-reduce of unknown size", 100 * _US, "a bucket of 25 MB takes longer on most links")
TURNS_OVERLAP = Threshold(
    "work of several GPUs at the same time", 0.20, "share of the work", "GPUs that work in parallel do not take turns"
)
TURNS_SHARE = _share("waiting while another GPU works", 0.80, "below that, another cause delays much of the work")
CLOCK_MIN_STEPS = Threshold("repeated steps", 4, "steps", "fewer steps show no trend")
OP_COMPILATION_SHARE = _share(
    "idle time in calls that compile", 0.02, "an op that is compiled once in a while is not worth changing the option"
)
AI_CPU_SHARE = _share("share of NPU time", 0.05, "these processors should only control the others")
CONTENTION_RATIO = _times(
    "a call over its op's median", 10, "caches and sizes change a time by a few times; a lost core by hundreds"
)
CONTENTION_GROUP_MIN = Threshold("calls of an op", 16, "calls", "a median of fewer calls says little")
CONTENTION_CALLS_SHARE = _share(
    "such calls of an op",
    0.03,
    "a scheduler interrupts about one call in a hundred on a busy machine; threads that wait for cores slow many more",
)
CONTENTION_MIN_CALLS = Threshold("such calls", 8, "calls", "a few slow calls can be chance")
CONTENTION_SHARE = _share(
    "time beyond ten times the median", 0.20, "a fifth of the time is worth another run with fewer threads"
)
READS_IN_A_ROW = _times("in a row", 8, "fewer are read now and then, and cost little")
OWN_TIME_OF_STACK = _ns("own time of an op", 50 * _US, "an op that dispatches and launches takes 5 to 20 µs itself")
SYNCS_PER_STEP = Threshold("waits a step", 16, "waits", "libraries such as DDP wait for a few events of their own")
OFFLOADS_PER_STEP = Threshold("copies back a step", 4, "copies", "fewer are inputs that a node needs")
SMALL_PIECE = Threshold("kernels of a piece", 3, "kernels", "so few could be one, if the pieces were")
STEP_PAUSE_MIN = _ns("host code in one gap", 1 * _MS, "an op of Python takes tens of µs, a slow one hundreds")
LOCK_TURN = _ns("a turn of one thread", 5 * _MS, "Python's switch interval: a thread that wants the lock waits as long")
LOCK_TURNS = Threshold("pauses of one turn", 3, "pauses", "one or two of this length can be chance")
