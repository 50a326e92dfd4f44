"""List the kinds of faults: what is wrong, how it is mended, and what an expert would say of the faulty trace.

The expressions were written from what an expert would say, before any answer of the program was read; do not fit them
to its answers afterwards. They are compared in lower case. What is true of every program that the CPU limits ("the GPU
waits for launches", "a larger batch") names no fault: the mended twins are limited by the CPU, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

BUILDING = ("convnext", "gpt_neox")
"""Models whose traces may be read while rules are written."""

HELD_OUT = ("whisper", "r2plus1d", "gatv2")
"""Models whose traces are judged once the rules are done."""

HALVES = {"building": BUILDING, "held-out": HELD_OUT}
MODELS = (*BUILDING, *HELD_OUT)
TEST_MODEL = "plain"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault.

    `module` of `tools.fault_bench.faults` has a function of the kind's name. `sentence` matches a first sentence that
    names the fault, `action` an advice that mends it. `size` is "busy" for faults of the GPU's work and "light" for
    those of the CPU, which cost nothing where the GPU is the limit. `skipped` has the reason per model.
    """

    module: str
    group: str
    wrong: str
    mended: str
    sentence: str
    action: str
    size: str = "busy"
    skipped: dict[str, str] = field(default_factory=dict)


KINDS: dict[str, Kind] = {
    "float64_head": Kind(
        "numbers",
        "number type",
        "a projection of the features is computed in float64",
        "compute it in float32 or bf16",
        r"fp64|float64|double",
        r"float32|fp32|bf16|bfloat16|fp16|half|lower precision|(do not|avoid|without).{0,20}(float64|double|fp64)",
    ),
    "fp32_island": Kind(
        "numbers",
        "number type",
        "a stack of matmuls inside the bf16 model is kept in float32, without TF32",
        "leave it to autocast",
        r"fp32|float32|tf32|single precision|tensor cores?",
        r"bf16|bfloat16|fp16|half|autocast|tf32|matmul_precision",
    ),
    "repeated_casts": Kind(
        "numbers",
        "number type",
        "float32 weights are cast to bf16 at each of their uses",
        "cast the weights once",
        r"\bcast|conver(t|sion)|aten::(_to_copy|to)\b|dtype|copy_kernel|copies",
        r"once|\bcast|convert|store.{0,30}(bf16|half)|\.to\(|cache|keep.{0,40}(bf16|dtype)",
    ),
    "constants_copied": Kind(
        "numbers",
        "constants",
        "a constant table is copied from host memory at each use",
        "copy it once, as a buffer",
        r"host.to.device|h2d|htod|cop(y|ies).{0,40}(host|gpu|device|cpu)|pageable|memcpy|upload|transfer|constant",
        r"once|buffer|on the gpu|on the device|device=|cache|outside|pin|before the loop",
    ),
    "masks_remade": Kind(
        "numbers",
        "constants",
        "a causal mask is made again at each use",
        "make it once",
        r"mask|tril|triu|constant|arange|made again|recomput|same (tensor|values)|fill|again and again",
        r"once|cache|buffer|reuse|precompute|keep|outside|hoist",
    ),
    "tensor_from_list": Kind(
        "numbers",
        "constants",
        "a tensor is made from a long Python list in each step",
        "make it once, or from an array",
        r"\blist|torch\.tensor|from python|python (list|object|number)|lift_fresh|host code|python code|"
        r"(cpu|host).{0,60}(tensor|python)",
        r"once|from_numpy|numpy|as_tensor|buffer|cache|outside|precompute|array|keep",
        size="light",
    ),
    "results_copied_back": Kind(
        "numbers",
        "transfers",
        "each part of the results is copied to the host as soon as it is there",
        "collect them on the GPU, and copy once",
        r"\.cpu\(|device.to.host|d2h|dtoh|sync|wait(s|ed|ing)?.{0,40}(copy|memcpy|result)|cop(y|ies).{0,30}(back|host|cpu)|\bitem\b",
        r"once|collect|non_blocking|pinned|on the gpu|later|fewer|batch|accumulate|keep|end|remove",
        size="light",
    ),
    "small_copies": Kind(
        "numbers",
        "transfers",
        "the inputs are copied to the GPU field by field, in many small copies",
        "stack them and copy once",
        r"(small|many|\d+).{0,30}(cop(y|ies)|memcpy|transfer)|host.to.device|h2d|htod|pageable",
        r"stack|one copy|together|once|batch|collate|concatenat|merge|single|pin|non_blocking",
        size="light",
    ),
    "anomaly_mode": Kind(
        "debugging",
        "debug mode",
        "autograd's anomaly mode is left on",
        "turn it off",
        r"anomaly|nan check|debug",
        r"anomaly|turn.{0,20}off|disable|debug|remove",
        size="light",
    ),
    "nan_checks": Kind(
        "debugging",
        "debug mode",
        "each gradient is tested for NaN, and the answer read on the CPU",
        "test them all at once, or rarely",
        r"nan|isfinite|is_nonzero|\bitem\b|_local_scalar_dense|sync",
        r"once|remove|all (at once|together)|one (check|test|sync)|rarely|every n|fewer|keep.{0,30}gpu|without|batch|"
        r"avoid",
        size="light",
    ),
    "sync_timers": Kind(
        "debugging",
        "debug mode",
        "the GPU is synchronised after each layer, to time it",
        "use events, or the profiler",
        r"synchroni[sz]|sync",
        r"remove|event|without|profiler|avoid|fewer|once|do not|delete|drop",
        size="light",
    ),
    "deterministic_mode": Kind(
        "debugging",
        "debug mode",
        "deterministic algorithms are left on, and sort what atomics would add",
        "turn them off",
        r"determinis|\bsort|index_put|use_deterministic",
        r"determinis|turn.{0,20}off|disable|scatter|index_add|segment|sorted|atomic",
    ),
    "gradient_histograms": Kind(
        "debugging",
        "debug mode",
        "each gradient is copied to the CPU in each step, for a histogram",
        "do it every thousandth step",
        r"histogram|histc|device.to.host|d2h|dtoh|\.cpu\(|cop(y|ies).{0,40}(host|cpu)|sync|gradients? .{0,20}cop",
        r"every|rarely|less often|on the gpu|non_blocking|once|remove|fewer|pinned|keep|collect",
        size="light",
    ),
    "activation_statistics": Kind(
        "debugging",
        "debug mode",
        "hooks compute statistics of each activation in each step",
        "remove the hooks",
        r"hook|statistic|reduc|aten::(mean|std|var|norm|max)|monitor",
        r"hook|remove|every|rarely|less often|fewer|once|drop|disable|log",
    ),
    "graph_breaks": Kind(
        "debugging",
        "compiled code",
        "a compiled chain of elementwise operations is broken after each of them",
        "compile it in one piece",
        r"graph break|compiled.{0,60}(piece|graph|region|part|fragment)|broken|(piece|region|fragment)s.{0,40}compil",
        r"fullgraph|graph break|graph_break|one (piece|graph)|torch_logs|whole",
    ),
    "data_dependent_branch": Kind(
        "debugging",
        "compiled code",
        "compiled code branches on a value of the GPU, so that it is cut and waits there",
        "select with torch.where",
        r"graph break|compiled.{0,60}(piece|graph|region|part|fragment)|branch|\bitem\b|is_nonzero|sync|data.dependent",
        r"where|cond|fullgraph|graph break|graph_break|without.{0,30}item|on the gpu|remove|avoid|keep",
        size="light",
    ),
    "python_metrics": Kind(
        "debugging",
        "Python between steps",
        "metrics are computed in plain Python between the steps",
        "compute them with tensors",
        r"host code|python|between (the )?steps|cpu code|outside of? torch|(gpu|step).{0,40}wait.{0,40}(cpu|host|code)",
        r"vectori[sz]|numpy|on the gpu|tensor|thread|process|less often|every|move|shorten|with_stack|py-spy|outside",
        size="light",
    ),
    "background_thread": Kind(
        "debugging",
        "Python between steps",
        "a thread of the same process runs Python code, and takes the interpreter lock",
        "run it in another process",
        r"\bgil\b|interpreter|thread|contention|another (python )?(thread|code)|preempt",
        r"process|thread|\bgil\b",
        size="light",
    ),
    "checkpoint_each_step": Kind(
        "debugging",
        "Python between steps",
        "the weights are copied to the host and written in each step",
        "write them rarely",
        r"checkpoint|state_dict|torch\.save|\bsav(e|es|ing)\b|serializ|pickle|writ(es|ing)|device.to.host|d2h|dtoh|"
        r"cop(y|ies).{0,40}(host|cpu)|host code|between (the )?steps",
        r"less often|rarely|every|async|background|thread|process|fewer|save",
        size="light",
    ),
    "log_flushed": Kind(
        "debugging",
        "Python between steps",
        "many lines are logged in each step, each written to disk at once",
        "buffer them",
        r"\blog|print|flush|fsync|\bfile|\bwrit|i/o|host code|between (the )?steps|python",
        r"buffer|less often|every|\blog|async|thread|fewer|rarely|move|shorten|with_stack|py-spy|batch",
        size="light",
    ),
    "written_attention": Kind(
        "library",
        "written-out algorithm",
        "attention is written with two matmuls and a softmax",
        "call scaled_dot_product_attention",
        r"attention|softmax|score matri",
        r"scaled_dot_product_attention|sdpa|flash|fused attention",
    ),
    "written_recurrence": Kind(
        "library",
        "written-out algorithm",
        "an LSTM is written as a loop over time",
        "call nn.LSTM",
        r"recurren|lstm|rnn|gru|loop over|time steps?|one (position|token|step) at a time|sequential",
        r"nn\.lstm|lstm|cudnn|rnn|library|fused|scan|compile|cuda graph",
        size="light",
    ),
    "written_cross_entropy": Kind(
        "library",
        "written-out algorithm",
        "cross entropy is written with exp, sum, log and a one-hot product",
        "call cross_entropy",
        r"cross.entropy|\bloss|log.?softmax|one.hot|softmax",
        r"cross_entropy|fused|library|compile|nll_loss|log_softmax",
    ),
    "written_layer_norm": Kind(
        "library",
        "written-out algorithm",
        "layer norm is written with means and elementwise operations",
        "call layer_norm",
        r"layer.?norm|\bnorm|normali[sz]|elementwise|element-wise|unfused|memory.bound",
        r"layer_norm|layernorm|fuse|compile|library|rms_norm",
    ),
    "written_clipping": Kind(
        "library",
        "written-out algorithm",
        "gradients are clipped in a loop over the parameters",
        "call clip_grad_norm_(foreach=True)",
        r"clip|gradient norm|per.parameter|each parameter|foreach",
        r"clip_grad_norm|foreach|fused",
        size="light",
    ),
    "written_average": Kind(
        "library",
        "written-out algorithm",
        "a moving average of the weights is kept in a loop over the parameters",
        "call torch._foreach_lerp_",
        r"\bema\b|moving average|average|per.parameter|each parameter|lerp|foreach",
        r"foreach|fused|multi_avg|ema|every|compile",
        size="light",
    ),
    "written_convolution": Kind(
        "library",
        "written-out algorithm",
        "a convolution is written as unfold and matmul",
        "call conv1d",
        r"unfold|im2col|convolution|\bconv|cop(y|ies)",
        r"conv1d|conv2d|convolution|\bconv|library|cudnn",
    ),
    "written_cumsum": Kind(
        "library",
        "written-out algorithm",
        "a running sum is written as a loop over positions",
        "call cumsum",
        r"cumsum|running sum|prefix|\bscan\b|loop over|one (position|step) at a time",
        r"cumsum|\bscan\b|library|vectori[sz]|one (call|kernel)|compile|cuda graph",
        size="light",
    ),
    "written_distances": Kind(
        "library",
        "written-out algorithm",
        "pairwise distances are computed from all differences",
        "call cdist",
        r"distance|broadcast|pairwise|difference|elementwise|element-wise|memory.bound|unfused",
        r"cdist|matmul|gemm|expand|fuse|compile",
    ),
    "growing_cat": Kind(
        "memory",
        "memory",
        "a buffer grows by one block per cat",
        "collect the blocks and call cat once",
        r"\bcat\b|concatenat|grow|appen",
        r"preallocat|once|in place|full (length|size)|list|stack|fixed|write into|allocate",
    ),
    "memory_returned": Kind(
        "memory",
        "memory",
        "the cached memory is returned to the driver several times a step",
        "do not call empty_cache",
        r"empty_cache|cudafree|cudamalloc|alloc|driver|cached memory",
        r"empty_cache|caching|allocator|expandable|keep|remove|do not|reuse",
        size="light",
    ),
    "gradients_in_evaluation": Kind(
        "memory",
        "needless gradients",
        "an evaluation computes gradients that nothing reads",
        "evaluate in inference_mode, without backward",
        r"gradient|backward|autograd|no_grad|inference_mode|\bgrad\b",
        r"no_grad|inference_mode|requires_grad|without (gradients|backward)|skip|detach|remove",
    ),
    "frozen_backbone": Kind(
        "memory",
        "needless gradients",
        "only the head is trained, and the gradients of the whole model are computed",
        "freeze the rest with requires_grad_(False)",
        r"gradient|backward|frozen|autograd|requires_grad|unused|nothing (reads|uses)|no optimizer",
        r"requires_grad|no_grad|freeze|frozen|detach|inference_mode|optimizer",
    ),
    "two_backwards": Kind(
        "memory",
        "needless gradients",
        "two losses of one forward pass are sent backward one after the other",
        "add the losses and call backward once",
        r"backward|retain_graph|twice|gradient",
        r"\bsum|\badd|once|one backward|single|together|combine|retain_graph",
    ),
    "needless_clones": Kind(
        "memory",
        "memory",
        "the features are cloned again and again",
        "use them as they are",
        r"clone|cop(y|ies)|contiguous|duplicate|memory.bound|elementwise",
        r"clone|view|in place|without|avoid|remove|contiguous|reuse|expand|fuse",
    ),
    "needless_checkpointing": Kind(
        "memory",
        "memory",
        "activations are computed a second time in the backward pass, though memory is free",
        "turn checkpointing off",
        r"checkpoint|recomput|second time|twice|forward.{0,40}(again|in the backward)",
        r"checkpoint|recomput|turn.{0,20}off|keep|disable|selective|larger|memory",
    ),
    "activations_offloaded": Kind(
        "memory",
        "memory",
        "activations are moved to host memory and back",
        "keep them on the GPU",
        r"offload|save_on_cpu|host.to.device|device.to.host|h2d|d2h|htod|dtoh|memcpy|pageable|cop(y|ies).{0,50}(host|cpu|gpu|pin)",
        r"offload|keep|on the gpu|pin|checkpoint|overlap|non_blocking|remove|save_on_cpu|stream",
        size="light",
    ),
    "one_item_training": Kind(
        "batching",
        "one at a time",
        "the samples of a batch are trained one by one",
        "run them as one batch",
        r"one (sample|item|by one)|batch(es| size)?( of)? 1\b|(same|each) .{0,40}(again|times)|\bloops?\b|repeat",
        r"batch|together|at once|vmap|fewer",
        size="light",
    ),
    "one_item_evaluation": Kind(
        "batching",
        "one at a time",
        "the samples of a batch are evaluated one by one",
        "run them as one batch",
        r"one (sample|item|by one)|batch(es| size)?( of)? 1\b|(same|each) .{0,40}(again|times)|\bloops?\b|repeat",
        r"batch|together|at once|vmap|fewer",
        size="light",
    ),
    "embedding_tables": Kind(
        "batching",
        "one at a time",
        "many small embedding tables are read one after the other",
        "put them into one table, with offsets",
        r"embedding|table|lookup|index_select|gather",
        r"one table|offset|together|batch|fuse|merge|group|concatenat|stack|embedding_?bag|single",
        size="light",
    ),
    "small_matmuls": Kind(
        "batching",
        "one at a time",
        "one small matmul after the other, per group",
        "call bmm once",
        r"(small|many|\d+).{0,30}(matmul|gemm)|batched|\bloops?\b",
        r"\bbmm|batch|group|stack|together|at once|vmap|einsum|merge",
        size="light",
    ),
    "augmentation_per_item": Kind(
        "batching",
        "one at a time",
        "each sample is augmented by itself",
        "augment the batch at once",
        r"augment|one (sample|item|by one)|(small|many) kernels|\bloops?\b|repeat",
        r"batch|vectori[sz]|together|at once|vmap|fuse|compile|fewer",
        size="light",
    ),
    "metrics_per_class": Kind(
        "batching",
        "one at a time",
        "a metric is counted class by class, and each count read",
        "count all classes with bincount, and read once",
        r"\bitem\b|sync|metric|class by class|loop|_local_scalar_dense",
        r"bincount|once|vectori[sz]|keep.{0,30}gpu|collect|fewer|together|without|item|avoid|remove|batch",
        size="light",
    ),
    "few_blocks": Kind(
        "batching",
        "kernel shape",
        "a softmax of a few very long rows runs on as many thread blocks",
        "split the rows",
        r"few (thread )?blocks|blocks|\bgrid|occup|\bsms?\b|multiprocessor|under.?utili|small grid",
        r"split|more (blocks|rows|parallel)|reshape|two (stages|passes|steps)|\bsms?\b|parallel|larger|tile|chunk",
    ),
    "colliding_atomics": Kind(
        "batching",
        "kernel shape",
        "index_add adds all rows to a few targets, whose atomics collide",
        "multiply by a one-hot matrix",
        r"atomic|index_add|scatter|collid|contention|same (row|target|address)|index.?(func|put|kernel)",
        r"one.hot|matmul|segment|sort|reduc|atomic|two (stages|passes|steps)|bincount|privati",
    ),
    "strided_reads": Kind(
        "batching",
        "kernel shape",
        "elementwise operations read a transposed matrix beside a contiguous one",
        "store it contiguously, once",
        r"strid|contiguous|coalesc|layout|transpos|elementwise|memory.bound|bandwidth",
        r"contiguous|layout|strid|transpos|coalesc|memory_format",
    ),
    "odd_width": Kind(
        "batching",
        "kernel shape",
        "matmuls have an odd width, which tensor cores read badly",
        "pad to a multiple of 8",
        r"align|multiple of (8|16|64|128)|odd|\bpad|shape|divisible|\bsize|tensor core|gemm|matmul",
        r"\bpad|multiple|align|round|divisible",
    ),
    "diagonal_matmul": Kind(
        "batching",
        "kernel shape",
        "rows are scaled by a matmul with a diagonal matrix",
        "multiply elementwise",
        r"diag|gemm|matmul|\bmm\b",
        r"elementwise|element-wise|diag|broadcast|\bscale|multiply",
    ),
    "sort_for_top_k": Kind(
        "batching",
        "kernel shape",
        "all values are sorted to take the largest few",
        "call topk",
        r"\bsort|radix|argsort",
        r"top.?k|\bsort|kthvalue|max|partial|select",
    ),
}
"""By name, in the order in which they are recorded."""
