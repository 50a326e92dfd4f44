"""List the kinds of faults: what is wrong, how it is mended, and what an expert would say of the faulty trace.

The expressions were written from what an expert would say, before any answer of the program was read; do not fit them
to its answers afterwards. They are compared in lower case. What is true of every program that the CPU limits ("the GPU
waits for launches", "a larger batch") names no fault: the mended twins are limited by the CPU, too. Nor does a class
of work that every program has (matmuls, elementwise operations, copies, the backward pass), nor a word that the twin's
own right use of the library brings. An action says what to do, not the fault's name once more, since it is looked for
in the sentence, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

BUILDING = ("convnext", "gpt_neox", "whisper", "r2plus1d", "gatv2")
"""Models whose traces may be read while rules are written."""

HELD_OUT = ("swin_v2", "t5", "edge_conv")
"""Models whose traces are judged once the rules are done."""

THIRD = ("fcos", "mixtral", "dcn_v2")
"""Models chosen after the rules were written, with THIRD_KINDS, to be judged once."""

FOURTH = ("lraspp", "conformer", "mamba2")
"""Models chosen after the third half was judged, with FOURTH_KINDS, to be judged once."""

FIFTH = ("diffusion_unet", "qwen2", "lstm_encoder")
"""Models chosen after the fourth half was judged, with FIFTH_KINDS, to be judged once."""

SIXTH = ("vit", "vae", "wavenet")
"""Models chosen after the fifth half was judged, with SIXTH_KINDS, to be judged once."""

HALVES = {
    "building": BUILDING,
    "held-out": HELD_OUT,
    "third": THIRD,
    "fourth": FOURTH,
    "fifth": FIFTH,
    "sixth": SIXTH,
}
MODELS = (*BUILDING, *HELD_OUT, *THIRD, *FOURTH, *FIFTH, *SIXTH)
TEST_MODEL = "plain"

SYNC = r"(?<!a)sync|\bitem\b|_local_scalar_dense|is_nonzero"
WAITS = r"(cpu|host|python|thread).{0,20} waits?\b.{0,20}(gpu|device|stream|result|value)"
TO_HOST = (
    r"device.to.host|d2h|dtoh|\.cpu\(|cop(y|ies|ied|ying).{0,40}(back|to (the )?(host|cpu)|into host)|"
    r"read(s|ing)?.{0,40} on the (cpu|host)"
)
TO_GPU = (
    r"host.to.device|h2d|htod|"
    r"cop(y|ies|ied|ying).{0,40}(from (the )?(host|cpu)|(?<!on)to (the )?(gpu|device)|onto the)|pageable"
)
NUMBER = r"\b(\d{2,}|\d{1,3},\d{3})(?![\d.,]| ?(%|[mµun]?s\b|[kmg]i?b\b))"
MANY = rf"(\bmany\b|\btiny\b|hundreds|thousands|dozens|separate|individual|repeated|one (by|after)|{NUMBER})"
LOOP = (
    r"(?<!training )\bloops?\b|unrolled|one (position|token|step|row|sample|item|image) (at a time|after)|one by one|"
    r"item by item|(same|sequence|chain).{0,60}(again and again|(\d+|two|three|four|several|many) times)|\brepeat"
)
PER_PARAMETER = (
    r"(per|each|every|for a single|one).(parameter|gradient|weight)\b|parameter by parameter|tensor by tensor|"
    r"(loop|small|launch|kernel).{0,40} (over|for|on|per) (the |all |each )?(parameter|gradient|weight)|"
    r"\b(not|without|no|instead of)\b.{0,20}foreach|foreach=false"
)
BETWEEN = (
    r"between (the |two )?steps|after (the )?(\w+[.#])?optimi[sz]er|end of (the|each|every) step|"
    r"outside (of )?(torch|pytorch|any op|all op)|"
    r"(python|host|cpu) code.{0,60}(no op|nothing|outside|after the last)|"
    r"\b(one|a|single) (\S+ ){0,3}(gap|pause|stretch) (of|between|in|after)"
)
RARELY = r"rarely|less often|every (n\b|few|other|so many|hundred|thousand|\d|\w+th\b)|now and then|fewer steps"
ELSEWHERE = (
    r"(another|other|separate|own|background|worker|second|sub).?(python )?(thread|process)|multiprocessing|"
    r"background"
)
LOCATE = r"with_stack|py-spy|stacks"
WRITTEN = (
    r"(written|by hand|hand-made|unfused|not fused|in pieces|step by step|separate (op|kernel|launch|pass)|"
    r"instead of)"
)
UNREAD = (
    r"(no optimi[sz]er|not? (read|used|needed|wanted|updated)|nothing|nobody|never|unused|needless|unneeded|"
    r"unnecessar|discard|thrown|dropped|evaluat|without (an )?optimi[sz]er)"
)


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
        r"fp64|float64|\bdouble\b|double.precision|\bf64|dgemm",
        r"float32|fp32|bf16|bfloat16|fp16|half.precision|lower precision|"
        r"(do not|avoid|without).{0,20}(float64|double|fp64)",
    ),
    "float64_promoted": Kind(
        "numbers",
        "number type",
        "a float64 table promotes the elementwise operations on the features to float64",
        "store the table as float32",
        r"fp64|float64|\bdouble\b|double.precision|\bf64",
        r"float32|fp32|bf16|bfloat16|fp16|half.precision|lower precision|\.float\(|"
        r"(do not|avoid|without).{0,20}(float64|double|fp64)",
    ),
    "fp32_island": Kind(
        "numbers",
        "number type",
        "a stack of matmuls inside the bf16 model is kept in float32, without TF32",
        "leave it to autocast",
        r"^(?!.*(\bcast|conver|cop(y|ies)|element-?wise|norm)).*(fp32|float32|(single|full).precision)|tf32|sgemm|"
        r"(fp32|float32|(single|full).precision).{0,40}(matmul|gemm|product)|"
        r"(matmul|gemm|product).{0,40}( in|, in| as|:) (fp32|float32|(single|full).precision)|"
        r"\b(without|not|no|idle|miss\w*|unused|bypass\w*)\b.{0,30}tensor cores?|"
        r"tensor cores?.{0,30}(idle|unused|not)",
        r"bf16|bfloat16|fp16|half.precision|autocast|tf32|matmul_precision",
    ),
    "fp32_attention": Kind(
        "numbers",
        "number type",
        "attention is computed in float32, since the norm of queries and keys gives float32",
        "cast queries and keys back to bf16",
        r"(attention|sdpa|fmha|softmax|score matri|quer(y|ies)).{0,80}"
        r"(fp32|float32|\bf32|(single|full).precision|number type|dtype|tensor cores?)|"
        r"(fp32|float32|\bf32|(single|full).precision).{0,80}(attention|sdpa|fmha|matmul|gemm|product|quer(y|ies))|"
        r"\b(without|not|no|cannot|can't|instead of|rules? out|prevents?|keeps?)\b.{0,40}(flash|tensor cores?)|"
        r"tensor cores?.{0,30}(idle|unused|not)",
        r"bf16|bfloat16|fp16|float16|half.precision|lower precision|autocast|\.half\(|"
        r"cast.{0,40}(quer|keys?\b|\bback\b|inputs?|attention)",
    ),
    "repeated_casts": Kind(
        "numbers",
        "number type",
        "float32 weights are cast to bf16 at each of their uses",
        "cast the weights once",
        r"\bcast|_to_copy|dtype|(fp32|float32) ?(to|→|->) ?(bf16|bfloat16)|"
        r"(?<!layout )(?<!layout-)conver.{0,60}(type|bf16|bfloat16|float|precision)|"
        r"(type|bf16|bfloat16|float\d*|precision).{0,40}conver",
        r"\bonce\b|(store|keep|hold|load).{0,40}(bf16|bfloat16|half|dtype)|\.to\(|\.bfloat16\(|\bcache|ahead|"
        r"beforehand|before the loop|outside",
    ),
    "constants_copied": Kind(
        "numbers",
        "constants",
        "a constant table is copied from host memory at each use",
        "copy it once, as a buffer",
        rf"{TO_GPU}|upload|constant|transfer.{{0,40}}(host|cpu|gpu)",
        r"\bonce\b|buffer|(keep|make|creat|build|hold|stor|allocat).{0,40} on the (gpu|device)|device=|\bcache|"
        r"outside|\bpin|before the loop|reuse",
        skipped={"dcn_v2": "a table of 26 rows costs nothing to copy"},
    ),
    "masks_remade": Kind(
        "numbers",
        "constants",
        "a causal mask is made again at each use",
        "make it once",
        r"\bmask|tril|triu|constant|arange|(made|built|created) again|recomput|same (tensor|values)|"
        r"aten::(fill|full)|\bfill(ed|functor| kernel)|again and again",
        r"\bonce\b|\bcache|buffer|reuse|precompute|keep (it|them|one|the (mask|constant|tensor|result))|outside|"
        r"hoist|is_causal",
    ),
    "positions_remade": Kind(
        "numbers",
        "constants",
        "a table of sinusoidal positions is computed again at each use",
        "compute it once",
        r"positional|sinusoid|\bsine?\b|\bcos(ine)?\b|position (encoding|embedding|table)|constant|arange|"
        r"(made|built|created|computed) again|recomput|same (tensor|values|table)|again and again",
        r"\bonce\b|\bcache|buffer|reuse|precompute|keep (it|them|one|the (table|constant|tensor|result))|outside|"
        r"hoist",
    ),
    "tensor_from_list": Kind(
        "numbers",
        "constants",
        "a tensor is made from a long Python list in each step",
        "make it once, or from an array",
        rf"\blists?\b|torch\.tensor|from python|python (list|object|number)|lift_fresh|{TO_GPU}|"
        r"(python|host|cpu).{0,60}(mak|build|creat|fill|convert).{0,30}tensor|"
        r"tensor.{0,40}(made|built|created|filled|converted) (by|on|from|in) (the )?(cpu|host|python)",
        r"\bonce\b|numpy|buffer|\bcache|outside|precompute|an array|keep.{0,40}on the (gpu|device)|"
        r"keep (it|the tensor)|reuse",
        size="light",
    ),
    "results_copied_back": Kind(
        "numbers",
        "transfers",
        "each part of the results is copied to the host as soon as it is there",
        "collect them on the GPU, and copy once",
        rf"{TO_HOST}|{SYNC}|{WAITS}|wait(s|ed|ing)?\b.{{0,40}}(copy|copies|memcpy|result)",
        r"\bonce\b|collect|non_blocking|\bpin|(keep|leave|gather).{0,40} on the (gpu|device)|later|together|"
        r"accumulate|at the end|(one|single) (copy|transfer|read)|batch (the|them|cop|read)|"
        r"(fewer|remove|avoid|drop|without).{0,40}(cop(y|ies)|sync|wait|item|read|\.cpu)",
        size="light",
    ),
    "small_copies": Kind(
        "numbers",
        "transfers",
        "the inputs are copied to the GPU field by field, in many small copies",
        "stack them and copy once",
        rf"(\bsmall\b|{MANY})\D{{0,25}}(cop(y|ies)|memcpy|transfers|uploads|host.to.device|h2d|htod)|"
        r"(host.to.device|h2d|htod|pageable) (memory )?(copies|memcpys|transfers)|"
        r"cop(ies|ied) (from (the )?(host|cpu)|to the (gpu|device))|field by field|"
        rf"(cop(y|ies|ied)|memcpy|h2d|htod).{{0,40}}(field by field|one by one|{NUMBER} times)",
        r"\bstack\b|(one|single) (copy|transfer|tensor)|together|\bonce\b|batch (the|them|cop)|collate|concatenat|"
        r"merge|\bpin|non_blocking",
        size="light",
    ),
    "anomaly_mode": Kind(
        "debugging",
        "debug mode",
        "autograd's anomaly mode is left on",
        "turn it off",
        r"anomaly|\bnans?\b|isnan|debug(ging)? (mode|check)|\bitem\b|_local_scalar_dense|is_nonzero",
        r"detect_anomaly|(turn|switch).{0,40}\boff\b|"
        r"(disabl|remov|leave|without|stop|drop).{0,40}(anomaly|debug|mode)|"
        r"anomaly.{0,40}(\boff\b|disabl|remov|false)",
        size="light",
    ),
    "nan_checks": Kind(
        "debugging",
        "debug mode",
        "each gradient is tested for NaN, and the answer read on the CPU",
        "test them all at once, or rarely",
        rf"\bnans?\b|isnan|isfinite|{SYNC}|{WAITS}",
        r"\bonce\b|all (at once|together)|(one|single) (check|test|sync|read)|rarely|every n|foreach|"
        r"keep.{0,40}(gpu|device)|(fewer|remove|avoid|drop|without|delete).{0,40}(sync|item|check|read|wait|nan)|"
        r"batch (the|them) ",
        size="light",
    ),
    "validated_distributions": Kind(
        "debugging",
        "debug mode",
        "distributions check their arguments, and read each answer on the CPU",
        "pass validate_args=False",
        rf"validat|distribution|{SYNC}|{WAITS}",
        r"validate_args|(turn|switch).{0,40}\boff\b|"
        r"(fewer|remove|avoid|drop|without|delete|disabl).{0,40}(sync|item|check|read|wait|validat)|"
        r"keep.{0,40}(gpu|device)|(one|single) (check|test|sync|read)|all (at once|together)",
        size="light",
    ),
    "flop_counter": Kind(
        "debugging",
        "debug mode",
        "a counter of operations is left on, so that each op is called through Python",
        "count one step, and leave the mode",
        r"flop.?count|flopcounter|(torch|python).?dispatch|dispatch.?mode|intercept|debug(ging)? (mode|tool)|"
        r"(tensor|mode) subclass|function mode|"
        r"\bops?\b.{0,60}(\btwice\b|second time|(inside|within|in|below) (itself|themselves|the same))|"
        r"(nested|doubled|duplicated?|repeated) (aten )?(ops?|calls?|operators?)\b|"
        r"(each|every|all) (aten )?(ops?|operators?|operations?)\b.{0,40}(through|in|by|to|via|into) (the )?python",
        r"(count|measur|profil|run|do).{0,30}\bonce\b|one step|(turn|switch).{0,40}\boff\b|"
        r"(remov|disabl|without|leav|drop|stop|exit|outside|fewer|end)\w*.{0,40}"
        rf"(mode|counter|flop|dispatch|subclass|intercept)|{RARELY}|{LOCATE}",
        size="light",
    ),
    "sync_timers": Kind(
        "debugging",
        "debug mode",
        "the GPU is synchronised after each layer, to time it",
        "use events, or the profiler",
        rf"(?<!a)sync|{WAITS}",
        r"\bevents?\b|(with|by) the profiler|profiler instead|\bonce\b|"
        r"\b(remove|without|avoid|fewer|do not|delete|drop|no)\b.{0,40}(sync|wait|timer|timing)",
        size="light",
    ),
    "deterministic_mode": Kind(
        "debugging",
        "debug mode",
        "deterministic algorithms are left on, and sort what atomics would add",
        "turn them off",
        r"determinis|\bsort|radix|index_put|indexing_backward",
        r"use_deterministic|(turn|switch).{0,40}\boff\b|"
        r"(disabl|leave|without|unset|remov|drop|allow).{0,40}determinis|determinis.{0,40}(\boff\b|disabl|false)|"
        r"non-?determinis|with atomics|segment",
    ),
    "gradient_histograms": Kind(
        "debugging",
        "debug mode",
        "each gradient is copied to the CPU in each step, for a histogram",
        "do it every thousandth step",
        rf"histogram|histc|{TO_HOST}|{SYNC}|gradients? .{{0,20}}cop",
        rf"{RARELY}|non_blocking|\bonce\b|\bpin|collect|(keep|compute|histc|histogram|do it).{{0,40}} on the gpu|"
        r"(fewer|remove|avoid|drop|without).{0,40}(cop(y|ies)|sync|wait|histogram|\.cpu)",
        size="light",
    ),
    "activation_statistics": Kind(
        "debugging",
        "debug mode",
        "hooks compute statistics of each activation in each step",
        "remove the hooks",
        r"hook|statistic|monitor|aten::(mean|std|var|amax|amin)\b|\b(std|amax|amin)\b|"
        r"reductions?.{0,60}(activation|output|each (layer|module)|every (layer|module))",
        r"(remov|drop|disabl|without|delet|turn off|leave out).{0,40}(hook|statistic|monitor|reduction|them|"
        rf"logging|mean|std)|{RARELY}|fewer (statistic|layer|module)",
    ),
    "graph_breaks": Kind(
        "debugging",
        "compiled code",
        "a compiled chain of elementwise operations is broken after each of them",
        "compile it in one piece",
        r"graph.?break|broken (up|into|by|apart|after|in)|(in|into) pieces|fragment|"
        r"compil.{0,60}(\b([2-9]|\d{2,})|two|three|four|several|many|separate|small)( [\w-]+)? (piece|graph|region|"
        r"part)s|"
        r"(\b([2-9]|\d{2,})|two|three|four|several|many|separate|small) (piece|graph|region|part)s.{0,40}compil|"
        r"(\b([2-9]|\d{2,})|two|three|four|several|many|separate|small) compiled (piece|graph|region|part)s",
        r"fullgraph|graph_breaks|torch_logs|(in|as) (one|a single) (piece|graph|region)|as a whole|"
        r"(remov|avoid|without|mend|fix|find|clos).{0,40}(graph.?)?break",
    ),
    "data_dependent_branch": Kind(
        "debugging",
        "compiled code",
        "compiled code branches on a value of the GPU, so that it is cut and waits there",
        "select with torch.where",
        rf"graph.?break|broken (up|into|by|apart|in)|(in|into) pieces|fragment|\bbranch|{SYNC}|data.dependent|{WAITS}",
        r"torch\.where|\bwhere\(|torch\.cond|\bcond\(|fullgraph|graph_breaks|torch_logs|"
        r"(remov|avoid|without|drop|replac|fewer).{0,40}(item|sync|branch|\bif\b|break|wait|read)|"
        r"(decid|select|choos|keep|stay|branch|compar).{0,40} on the (gpu|device)",
        size="light",
    ),
    "python_metrics": Kind(
        "debugging",
        "Python between steps",
        "metrics are computed in plain Python between the steps",
        "compute them with tensors",
        rf"{BETWEEN}|plain python|metric",
        r"vectori[sz]|numpy|(with|as|into|to) (\w+ )?tensors?\b|(comput|mov|do|run).{0,40} (on|to) the gpu|"
        rf"{ELSEWHERE}|{RARELY}|shorten|mov(e|ing) (it|them|this|that|the|work|out|off)|{LOCATE}",
        size="light",
    ),
    "background_thread": Kind(
        "debugging",
        "Python between steps",
        "a thread of the same process runs Python code, and takes the interpreter lock",
        "run it in another process",
        r"\bgil\b|interpreter lock|(another|other|second|background|competing|further) (\w+ )?(threads?|code)\b|"
        r"contention|contend|compet|preempt|descheduled|not scheduled|lost the (cpu|core|lock)",
        r"(another|other|separate|own|sub).?process|multiprocessing|"
        r"(stop|end|remov|mov|fewer|without|find|limit|paus).{0,40}threads?\b|releas.{0,20}\bgil\b|free-threaded|"
        r"py-spy",
        size="light",
    ),
    "subprocess_each_step": Kind(
        "debugging",
        "Python between steps",
        "a program is started in each step, and waited for",
        "do it rarely, or in a thread of its own",
        rf"{BETWEEN}|sub.?process|\bfork|child process|(another|external|other) program|shell command",
        rf"{RARELY}|{ELSEWHERE}|\bnvml|pynvml|psutil|asynchron|shorten|without waiting|"
        rf"mov(e|ing) (it|them|this|that|the|work|out|off)|{LOCATE}",
        size="light",
    ),
    "garbage_collected": Kind(
        "debugging",
        "Python between steps",
        "Python's garbage is collected after each step, over all objects of the program",
        "do it rarely, or freeze the objects that stay",
        rf"{BETWEEN}|garbage|\bgc\b|gc\.",
        r"(without|disabl|remov|drop|fewer|less|do not|avoid|stop|delet|turn off)\w*.{0,40}"
        rf"(garbage|\bgc\b|collect)|gc\.(disable|freeze|set_threshold)|\bfreez|{RARELY}|shorten|"
        rf"mov(e|ing) (it|them|this|that|the|work|out|off)|{LOCATE}",
        size="light",
    ),
    "checkpoint_each_step": Kind(
        "debugging",
        "Python between steps",
        "the weights are copied to the host and written in each step",
        "write them rarely",
        r"checkpoint|state_dict|torch\.save|saving\b|sav(e|es|ed) (the |a |its |all )?(weight|model|state|parameter)|"
        rf"serializ|pickle|writ(es?|ing|ten)\b.{{0,40}}(disk|file|weights)|{TO_HOST}|{BETWEEN}",
        rf"{RARELY}|asynchron|async_save|async (save|checkpoint)|{ELSEWHERE}|non_blocking|\bpin|"
        rf"fewer (cop|checkpoint)",
        size="light",
    ),
    "log_flushed": Kind(
        "debugging",
        "Python between steps",
        "many lines are logged in each step, each written to disk at once",
        "buffer them",
        r"\blog(s|ged|ging|ger)?\b|\bprint|flush|fsync|\bfiles?\b|writ(es?|ing|ten)\b.{0,20}(disk|line)|i/o|"
        rf"{BETWEEN}",
        rf"buffer|{RARELY}|{ELSEWHERE}|asynchron|fewer (line|write|flush)|batch (the|them|line)|shorten|"
        rf"mov(e|ing) (it|them|this|that|the|work|out|off)|log (less|fewer|rarely)|{LOCATE}",
        size="light",
    ),
    "written_attention": Kind(
        "library",
        "written-out algorithm",
        "attention is written with two matmuls and a softmax",
        "call scaled_dot_product_attention",
        r"^(?!.*(flash|fmha|sdpa|scaled_dot_product|efficient_attention)).*attention|(?<!log)(?<!log.)softmax|"
        rf"score matri|attention.{{0,80}}({WRITTEN}|two (matmul|product)|\b(use|call)\b)",
        r"scaled_dot_product_attention|sdpa|flash|fused attention|flex_attention",
    ),
    "written_recurrence": Kind(
        "library",
        "written-out algorithm",
        "an LSTM is written as a loop over time",
        "call nn.LSTM",
        rf"recurrence|loop over|\btime.?steps?\b|sequential|step by step|{LOOP}|"
        rf"(recurrent|lstm|rnn|\bgru\b).{{0,60}}({WRITTEN}|cell)|{WRITTEN}.{{0,60}}(recurrent|lstm|rnn|\bgru\b)",
        r"nn\.(lstm|gru|rnn)|cudnn|library|fused (kernel|lstm|rnn|layer|call)|associative_scan|compile|cuda.?graph|"
        r"reduce-overhead|one (call|kernel)",
        size="light",
    ),
    "written_cross_entropy": Kind(
        "library",
        "written-out algorithm",
        "cross entropy is written with exp, sum, log and a one-hot product",
        "call cross_entropy",
        r"^(?!.*(log_?softmax|nll_loss|cross_entropy_loss)).*(cross.entropy|\bloss\b(?! of)|softmax)|one.hot|"
        rf"{WRITTEN}.{{0,80}}(\bloss|cross.entropy|softmax)|(\bloss|cross.entropy|softmax).{{0,80}}{WRITTEN}",
        r"cross_entropy|fused (loss|cross|linear|kernel|softmax)|\bfuse\b|library|compile|nll_loss|log_softmax",
    ),
    "written_layer_norm": Kind(
        "library",
        "written-out algorithm",
        "layer norm is written with means and elementwise operations",
        "call layer_norm",
        rf"(layer.?norm|normali[sz]|\bnorms?\b).{{0,80}}({WRITTEN}|elementwise|element-wise|pointwise|\b(use|call)\b)|"
        rf"({WRITTEN}|elementwise|element-wise|pointwise).{{0,80}}(layer.?norm|normali[sz]|\bnorms?\b|\bmeans?\b|"
        r"varianc)|"
        r"(\bmeans?\b|aten::mean|varianc).{0,60}(elementwise|element-wise|pointwise|unfused|\bsub\b|\bpow\b|"
        r"squares?\b)",
        r"(use|call|replac|with|by|nn\.|f\.|functional\.).{0,30}layer_?norm|\bfus(e|ing)\b|fused (kernel|norm|layer)|"
        r"compile|library|rms_norm",
    ),
    "written_gelu": Kind(
        "library",
        "written-out algorithm",
        "the activation GELU is written with pow, tanh and products",
        "call gelu(approximate='tanh')",
        rf"(gelu|activation functions?|\bactivation\b(?! memory)).{{0,80}}({WRITTEN}|elementwise|element-wise|"
        rf"pointwise|\b(use|call)\b)|({WRITTEN}|elementwise|element-wise|pointwise).{{0,80}}(gelu|activation function)|"
        r"\btanh\b|\bcub(e|es|ed|ic)\b",
        r"(use|call|replac|with|by|to|nn\.|f\.|functional\.).{0,30}gelu|gelu\(|approximate|\bfus(e|ing)\b|"
        r"fused (kernel|gelu|activation|op)|compile|library|(one|single) kernel",
    ),
    "written_clipping": Kind(
        "library",
        "written-out algorithm",
        "gradients are clipped in a loop over the parameters",
        "call clip_grad_norm_(foreach=True)",
        rf"\bclip|gradient norm|norm of the gradient|{PER_PARAMETER}|"
        r"between (the )?backward.{0,20} and (the )?optimi[sz]er",
        r"clip_grad_norm|foreach|multi.tensor|fused (kernel|call|clip)",
        size="light",
    ),
    "written_average": Kind(
        "library",
        "written-out algorithm",
        "a moving average of the weights is kept in a loop over the parameters",
        "call torch._foreach_lerp_",
        r"\bema\b|(moving|running|exponential) average|average of the (weight|parameter)|"
        rf"averaged? (weight|parameter)|(?<!foreach_)lerp|{PER_PARAMETER}|"
        r"after (the )?(\w+[.#])?optimi[sz]er.{0,60}(small|launch|kernels|elementwise)",
        rf"foreach|multi.tensor|multi_avg|averagedmodel|fused (kernel|call|update|average)|{RARELY}|compile",
        size="light",
    ),
    "written_convolution": Kind(
        "library",
        "written-out algorithm",
        "a convolution is written as unfold and matmul",
        "call conv1d",
        r"unfold|im2col|\bpatches|(overlapping|sliding).windows?|"
        rf"conv\w*.{{0,60}}({WRITTEN}|as a (matmul|gemm|linear|product))|{WRITTEN}.{{0,40}}\bconv|"
        r"cop(y|ies|ied).{0,60}(before|ahead of|for|into|feeds?) (a |the |each )?(matmul|gemm|linear|addmm|product)",
        r"conv1d|conv2d|(use|call|by|with|nn\.|f\.|as) (a |one |the )?\bconv|cudnn|library",
    ),
    "written_cumsum": Kind(
        "library",
        "written-out algorithm",
        "a running sum is written as a loop over positions",
        "call cumsum",
        rf"cumsum|(running|cumulative|prefix|partial) sum|\bscan\b|sequential|{LOOP}|"
        rf"(\bsmall\b|{MANY})\D{{0,30}}(aten::add|\badds\b|additions)|"
        rf"(aten::add|\badds\b|additions).{{0,30}}{NUMBER} times",
        r"cumsum|associative_scan|\bscan\b|library|vectori[sz]|one (call|kernel)|compile|cuda.?graph",
        size="light",
    ),
    "one_hot_lookup": Kind(
        "library",
        "written-out algorithm",
        "rows of a table are looked up by a matmul with one-hot vectors",
        "call embedding, or index the table",
        r"one.hot|look.?up|embedding.{0,60}(matmul|gemm|product)|"
        r"(matmul|gemm|product|matri).{0,60}(embedding|\bzeros\b|mostly zero|selects? (the )?rows)",
        r"\bembedding\(|f\.embedding|nn\.embedding|(call|use|by|with|through) (an? |the )?embedding|index_select|"
        r"\bgather\b|\bindex(ing)? (the|it|into|by|with|directly)|"
        r"(without|instead of|no|avoid|not).{0,30}(matmul|gemm|one.hot|matrix)",
    ),
    "written_distances": Kind(
        "library",
        "written-out algorithm",
        "pairwise distances are computed from all differences",
        "call cdist",
        r"distance|broadcast|pairwise|\bdifferences\b|subtract|aten::sub\b|(large|huge) (intermediate|temporar)|"
        r"(elementwise|element-wise|pointwise|unfused).{0,60}(\bpow\b|squar|\bsub\b|\[\d+, \d+, \d+\])",
        r"cdist|(by|with|as|use|through) (a |one )?(matmul|gemm|product)|expand(ing)? the (square|product|norm)|"
        r"\bfus(e|ing)\b|fused kernel|compile",
    ),
    "growing_cat": Kind(
        "memory",
        "memory",
        "a buffer grows by one block per cat",
        "collect the blocks and call cat once",
        r"\bcat\b|catarray|concatenat|\bgrow|\bappend",
        r"preallocat|allocat\w*.{0,30}(once|in full|up front|beforehand|full)|\bonce\b|in.place|full (length|size)|"
        r"(in|into) a (python )?list|(one|a single) (torch\.)?cat\b|torch\.stack|write into|"
        r"fixed (size|buffer|length)",
    ),
    "memory_returned": Kind(
        "memory",
        "memory",
        "the cached memory is returned to the driver several times a step",
        "do not call empty_cache",
        r"empty_cache|cudafree|cudamalloc|\balloc|cached memory|memory.{0,40}driver|driver.{0,40}memory",
        r"empty_cache|caching allocator|(keep|reuse|hold).{0,40}(memory|cache|blocks)|memory_caching",
        size="light",
    ),
    "gradients_in_evaluation": Kind(
        "memory",
        "needless gradients",
        "an evaluation computes gradients that nothing reads",
        "evaluate in inference_mode, without backward",
        rf"(gradients?|backward|autograd|\bgrad\b).{{0,80}}{UNREAD}|"
        rf"{UNREAD}.{{0,80}}(gradient|backward|autograd|\bgrad\b)|no_grad|inference_mode",
        r"no_grad|inference_mode|requires_grad|without (gradient|backward|autograd)|"
        r"(skip|remov|drop|leave out).{0,30}backward",
    ),
    "frozen_backbone": Kind(
        "memory",
        "needless gradients",
        "only the head is trained, and the gradients of the whole model are computed",
        "freeze the rest with requires_grad_(False)",
        rf"(gradients?|backward|autograd|\bgrad\b).{{0,80}}{UNREAD}|"
        rf"{UNREAD}.{{0,80}}(gradient|backward|autograd|\bgrad\b)|frozen|\bfreez|requires_grad|"
        r"optimi[sz]er (has|gets|holds|sees|updates) .{0,20}(only|few|not all)",
        r"requires_grad|no_grad|\bfreez|detach|inference_mode",
    ),
    "teacher_gradients": Kind(
        "memory",
        "needless gradients",
        "the backward pass runs through a second model, whose gradients nothing reads",
        "run the second model in no_grad",
        rf"(gradients?|backward|autograd|\bgrad\b).{{0,80}}{UNREAD}|"
        rf"{UNREAD}.{{0,80}}(gradient|backward|autograd|\bgrad\b)|teacher|frozen|\bfreez|requires_grad|no_grad|"
        r"optimi[sz]er (has|gets|holds|sees|updates) .{0,20}(only|few|not all|half)",
        r"requires_grad|no_grad|\bfreez|detach|inference_mode",
    ),
    "two_backwards": Kind(
        "memory",
        "needless gradients",
        "two losses of one forward pass are sent backward one after the other",
        "add the losses and call backward once",
        r"\b(two|2|second|several|both|repeated) ([\w-]+ )?(backward|calls? of backward)|retain_graph|"
        r"backward.{0,60}(\btwice\b|\b2 times|two times|second time|again|more than once)|\btwice\b.{0,40}backward",
        r"\bsum (the|both|all|them|of)|\badd(ed|ing)? (the|both|all|them|up)|\bonce\b|(one|single) (call|backward)|"
        r"together|combine",
    ),
    "needless_clones": Kind(
        "memory",
        "memory",
        "the features are cloned again and again",
        "use them as they are",
        r"clone|duplicat|device.to.device|d2d|dtod|"
        r"(same|needless|unneeded|unnecessary|redundant).{0,40}cop(y|ies|ied)|"
        r"cop(y|ies|ied).{0,60}(again|needless|unneeded|unnecessar|redundant|same|unchanged|\d times)",
        r"(remov|avoid|drop|without|delet|skip|fewer|not).{0,40}(clone|cop(y|ies))|\bviews?\b|in.place|reuse|"
        r"as (it is|they are)",
    ),
    "needless_checkpointing": Kind(
        "memory",
        "memory",
        "activations are computed a second time in the backward pass, though memory is free",
        "turn checkpointing off",
        r"checkpoint|recomput|second time|(forward|activation).{0,60}(again|twice|in the backward|once more)|"
        r"\btwice\b.{0,40}(forward|activation)",
        r"(turn|switch).{0,40}\boff\b|disabl|selective|"
        r"(without|remov|drop|no|fewer|stop|less|leave out).{0,30}(checkpoint|recomput)|"
        r"checkpoint (less|fewer|only|part)|keep.{0,40}(activation|them|memory)|memory (is )?(free|left)|"
        r"(free|spare|enough) memory",
    ),
    "activations_offloaded": Kind(
        "memory",
        "memory",
        "activations are moved to host memory and back",
        "keep them on the GPU",
        rf"offload|save_on_cpu|{TO_GPU}|{TO_HOST}|cop(y|ies).{{0,40}}(pinned|host memory)",
        r"(without|remov|drop|stop|disabl|avoid|turn off).{0,40}(offload|save_on_cpu|cop(y|ies)|transfer)|"
        r"save_on_cpu|\bpin|keep.{0,60}(gpu|device)|checkpoint|overlap|non_blocking|"
        r"(side|own|another|second|separate) stream|offload less",
        size="light",
    ),
    "one_item_training": Kind(
        "batching",
        "one at a time",
        "the samples of a batch are trained one by one",
        "run them as one batch",
        rf"one (sample|item)\b|batch(es| size)?( is| of)? (1|one)\b|{LOOP}|micro-?batch|gradient accumulation|"
        r"\b([2-9]|two|three|four|several) (forwards?|backwards?|passes|calls of the model)\b|"
        r"(forward|model).{0,40}(twice|\b[2-9] times|several times)",
        r"(larger|bigger|one|whole|full|as a|in a|increase the|single) batch|batched|batch (them|the|together|all)|"
        r"together|at once|vmap|more (samples|items)",
        size="light",
    ),
    "one_item_evaluation": Kind(
        "batching",
        "one at a time",
        "the samples of a batch are evaluated one by one",
        "run them as one batch",
        rf"one (sample|item)\b|batch(es| size)?( is| of)? (1|one)\b|{LOOP}|micro-?batch|gradient accumulation|"
        r"\b([2-9]|two|three|four|several) (forwards?|backwards?|passes|calls of the model)\b|"
        r"(forward|model).{0,40}(twice|\b[2-9] times|several times)",
        r"(larger|bigger|one|whole|full|as a|in a|increase the|single) batch|batched|batch (them|the|together|all)|"
        r"together|at once|vmap|more (samples|items)",
        size="light",
    ),
    "embedding_tables": Kind(
        "batching",
        "one at a time",
        "many small embedding tables are read one after the other",
        "put them into one table, with offsets",
        rf"(\bsmall\b|{MANY})\D{{0,40}}(embedding|look-?ups|index_select)|\btables\b|"
        rf"(embedding|look-?up|index_select)s?.{{0,60}}({MANY}|each|\btables\b|\bsmall\b|\d times)",
        r"one table|offset|together|batch (the|them)|batched|\bfuse\b|merge|group|concatenat|\bstack\b|"
        r"embedding_?bag|single (table|look-?up|call|kernel|embedding)|one (look-?up|call|embedding)|at once",
        size="light",
    ),
    "small_matmuls": Kind(
        "batching",
        "one at a time",
        "one small matmul after the other, per group",
        "call bmm once",
        rf"{MANY}\D{{0,30}}(matmul|gemm|aten::mm|products)|"
        rf"(matmul|gemm|aten::mm|product)s?.{{0,40}}({NUMBER} times|one (by|after))|"
        rf"(un|not |could be |instead of )batched|{LOOP}",
        r"\bbmm|baddbmm|batched|batch (the|them)|(in|as|into) one (batch|call|matmul)|grouped|\bstack\b|together|"
        r"at once|vmap|einsum|merge",
        size="light",
    ),
    "attention_per_head": Kind(
        "batching",
        "one at a time",
        "attention is called once per head",
        "call it once for all heads",
        rf"\b(each|per|every|one|single|separate) heads?\b|head by head|{LOOP}|"
        rf"{MANY}\D{{0,40}}(attention|sdpa|fmha)|(attention|sdpa|fmha).{{0,40}}({NUMBER} times|one (by|after))|"
        r"(un|not |could be |instead of )batched",
        r"all (the )?heads|heads? (in|as) (one|a dimension)|(one|single) (call|kernel|attention|batch)|together|"
        r"at once|\bstack\b|batched|batch (the|them)|\bonce\b|vmap|merge",
        size="light",
    ),
    "optimizer_per_parameter": Kind(
        "batching",
        "one at a time",
        "an optimizer of the program's own updates one parameter after the other",
        "update all with torch._foreach functions",
        rf"{PER_PARAMETER}|\bsingle.tensor|"
        r"optimi[sz]er.{0,60}(\bsmall\b|\btiny\b|\bmany\b|hundreds|thousands|dozens|\bloops?\b|foreach|unfused|"
        rf"not fused|{NUMBER} (\w+ )?(launches|kernels|ops|operations|calls))|"
        r"(\bsmall\b|\btiny\b|\bmany\b|hundreds|thousands|dozens|\bloops?\b|unfused|not fused)[^.]{0,40}optimi[sz]er|"
        rf"{NUMBER} (\w+ )?(launches|kernels|ops|operations|calls).{{0,30}}optimi[sz]er",
        r"foreach|multi.tensor|fused|\bfuse\b|compile|apex|"
        r"all (of )?(the |its )?(parameters|tensors|weights) (at once|together|in one)|one (kernel|call|launch) for|"
        r"flat(ten)?\b.{0,30}(parameter|weight|buffer)",
        size="light",
    ),
    "augmentation_per_item": Kind(
        "batching",
        "one at a time",
        "each sample is augmented by itself",
        "augment the batch at once",
        rf"augment|one (sample|item|image)\b|per (sample|item|image)\b|aten::(flip|roll)|\bflips?\b|{LOOP}",
        r"(?<!larger )(?<!bigger )(?<!larger the )batch|vectori[sz]|together|at once|vmap|\bfuse\b|compile|"
        r"fewer (launch|kernel)",
        size="light",
    ),
    "metrics_per_class": Kind(
        "batching",
        "one at a time",
        "a metric is counted class by class, and each count read",
        "count all classes with bincount, and read once",
        rf"^(?!.*bincount).*({SYNC}|{WAITS})|metric|class by class|{LOOP}|{MANY}\D{{0,40}}((?<!a)sync|\bitem\b)",
        r"bincount|\bonce\b|vectori[sz]|(keep|accumulat).{0,40}(gpu|device)|collect|together|"
        r"(one|single) (read|copy|sync|call)|(fewer|without|avoid|remov|drop).{0,40}(sync|item|read|wait)|"
        r"batch (the|them)",
        size="light",
    ),
    "class_means_by_mask": Kind(
        "batching",
        "one at a time",
        "rows are selected class by class with a boolean mask, whose size the CPU waits for",
        "add all rows by their class with index_add_",
        rf"nonzero|boolean|\bmask(s|ed|ing)?\b|class by class|{SYNC}|{WAITS}|{LOOP}|"
        r"(size|shape|number of (rows|elements)).{0,40}(depends|known|read|unknown)",
        r"index_add|scatter|segment|one.hot|bincount|vectori[sz]|torch\.where|\bwhere\(|at once|together|\bonce\b|"
        r"(fixed|static) (size|shape)|(multiply|weight)\w* (by|with) (the |a )?mask|"
        r"(fewer|remove|avoid|drop|without|instead of).{0,40}(nonzero|mask|sync|wait|boolean)",
        size="light",
    ),
    "few_blocks": Kind(
        "batching",
        "kernel shape",
        "a softmax of a few very long rows runs on as many thread blocks",
        "split the rows",
        r"(few|\b\d{1,2}|two|four|eight) (thread |gpu )?blocks|(small|tiny|few).{0,12}\bgrids?\b|"
        r"\bgrids?\b.{0,20}(small|few|\b\d\b)|(low|poor|small).{0,12}occupancy|occupancy.{0,12}(low|poor|only|small)|"
        r"(few|idle|empty|unused|only|\b\d of (the )?\d+).{0,30}\bsms?\b|"
        r"\bsms?\b.{0,40}(idle|empty|unused|few|only|no work)|multiprocessors? .{0,20}(idle|empty|few)|too few|"
        r"under.?utili|fills? (only )?(a |few|little|part)",
        r"split|more (thread )?(blocks|rows|parallel)|reshape|two (stages|passes)|in parallel|\btil(e|ing)|chunk",
    ),
    "colliding_atomics": Kind(
        "batching",
        "kernel shape",
        "index_add adds all rows to a few targets, whose atomics collide",
        "multiply by a one-hot matrix",
        r"atomic|index_add|indexfunc|index.?func|collid|collision|contention|conflict|same (row|target|address)|"
        r"scatter.{0,60}(few|same|\b8\b|eight|serial)|few (rows|targets|addresses)",
        r"one.hot|(by|with|as|use|through) (a |one )?(matmul|gemm|product)|segment|\bsort|two (stages|passes)|"
        r"bincount|privati|(fewer|without|avoid|no).{0,20}atomic|"
        r"(local|partial|hierarchical|first).{0,12}(reduc|\bsum|\badd)|"
        r"(reduce|sum|add)\w* (first|locally|before|per block|in parts)",
    ),
    "indexed_rows": Kind(
        "batching",
        "kernel shape",
        "rows are looked up by indexing, whose gradient adds equal rows in series",
        "call embedding",
        r"index_?put|indexing_?backward|\bindex(ing|ed|backward\w*)?\b.{0,60}(backward|gradient)|"
        r"(backward|gradient).{0,40}\b(of|from|through|by|for) (an? |the )?(\w+ )?(\w+::)?"
        r"(index(ing|ed)?|look-?ups?)\b|"
        r"accumulate=true|duplicate|collid|collision|contention|conflict|"
        r"(same|equal|repeated|few|identical) (distinct |different )?(rows?|targets?|address(es)?|ind(ex|ices))|"
        r"(rows?|ind(ex|ices)|adds?|additions?).{0,40}(serial|in series|one after)",
        r"f\.embedding|nn\.embedding|\bembedding\(|(call|use|by|with|through|to) (an? |the )?(\w+\.)*embedding|"
        r"index_select|index_add|scatter|one.hot|atomic|segment|bincount|\bgather\b|"
        r"(by|with|as|use|through) (a |one )?(matmul|gemm|product)|"
        r"(reduce|sum|add)\w* (first|locally|before|per block|in parts)",
    ),
    "strided_reads": Kind(
        "batching",
        "kernel shape",
        "elementwise operations read a transposed matrix beside a contiguous one",
        "store it contiguously, once",
        r"strid|(non|not).?contiguous|coalesc|transpos|(mixed|different|bad|wrong|two|memory) layouts?|"
        r"(low|poor|little).{0,20}bandwidth",
        r"\.contiguous|(mak|call|stor|keep|copy|lay|us)\w*.{0,40} contiguous|"
        r"same (layout|memory.format|strides?|order)|(stor|keep|lay|chang|copy)\w*.{0,40}(transpos|layout)|"
        r"memory_format",
    ),
    "odd_width": Kind(
        "batching",
        "kernel shape",
        "matmuls have an odd width, which tensor cores read badly",
        "pad to a multiple of 8",
        r"align|multiples? of|\bodd\b|\bpad|divisible|4,?093|"
        r"(bad|awkward|unfavou?rable|uneven|unsuit\w+|inefficient|unlucky).{0,20}(shape|size|width|dimension)|"
        r"\b(without|not|no|miss\w*)\b.{0,30}tensor cores?|(width|shape|size|dimension)s?.{0,40}tensor cores?",
        r"\bpad|multiples? of|\bround(ed|ing)? (it|them|the|up|to)|divisible by|align(ed|ing)? (to|the|it|them)",
    ),
    "diagonal_matmul": Kind(
        "batching",
        "kernel shape",
        "rows are scaled by a matmul with a diagonal matrix",
        "multiply elementwise",
        r"diag|(matmul|gemm|product|matri).{0,60}(\bzeros\b|mostly zero|scal(e|es|ing) (the )?(rows|columns))",
        r"element-?wise|broadcast|scal(e|ing) (the |each )?rows?|multipl(y|ying) (the |each )?rows?|"
        r"(without|instead of|no|avoid).{0,30}(matmul|gemm|matrix)",
    ),
    "sort_for_top_k": Kind(
        "batching",
        "kernel shape",
        "all values are sorted to take the largest few",
        "call topk",
        r"\bsort(s|ing)?\b|argsort|radix.?sort|segmented.?sort|sorts? all|(is|are) sorted",
        r"top.?k|kthvalue|partial sort|argmax|\bamax|only the (largest|k\b)",
    ),
}
"""By name, in the order in which they are recorded."""

_NEW_KINDS = (
    *("float64_promoted", "positions_remade", "validated_distributions", "subprocess_each_step"),
    *("one_hot_lookup", "teacher_gradients", "attention_per_head", "class_means_by_mask"),
)
THIRD_KINDS = (
    *_NEW_KINDS,
    *("growing_cat", "small_copies", "odd_width", "results_copied_back", "float64_head", "small_matmuls"),
    *("written_average", "written_clipping", "written_layer_norm", "needless_checkpointing", "constants_copied"),
    *("graph_breaks", "written_cross_entropy", "strided_reads", "gradients_in_evaluation", "gradient_histograms"),
)
"""Kinds of the third half: eight written for it, and 16 of the other 49, drawn by random.Random(20261128).sample."""

FOURTH_KINDS = (
    *("fp32_attention", "written_gelu", "indexed_rows", "optimizer_per_parameter", "garbage_collected", "flop_counter"),
    *("activations_offloaded", "nan_checks", "sync_timers", "frozen_backbone", "data_dependent_branch"),
    *("anomaly_mode", "memory_returned", "gradient_histograms", "two_backwards", "written_cross_entropy"),
    *("diagonal_matmul", "sort_for_top_k", "written_recurrence", "background_thread"),
)
"""Kinds of the fourth half: six written for it, and 14 of the other 57, drawn by random.Random(20261129).sample."""

FIFTH_KINDS = (
    *("one_item_evaluation", "tensor_from_list", "written_distances", "fp32_attention", "python_metrics", "few_blocks"),
    *("background_thread", "graph_breaks", "constants_copied", "activations_offloaded", "teacher_gradients"),
    *("one_item_training", "optimizer_per_parameter", "gradients_in_evaluation", "two_backwards", "small_copies"),
    *("class_means_by_mask", "float64_head", "small_matmuls", "validated_distributions", "masks_remade"),
    *("frozen_backbone",),
)
"""Kinds of the fifth half: 22 of all 63, drawn by random.Random(20261130).sample."""

SIXTH_KINDS = (
    *("results_copied_back", "colliding_atomics", "sync_timers", "sort_for_top_k", "flop_counter", "nan_checks"),
    *("small_copies", "repeated_casts", "constants_copied", "indexed_rows", "tensor_from_list"),
    *("data_dependent_branch", "fp32_island", "written_cross_entropy", "anomaly_mode"),
)
"""Kinds of the sixth half: 15 of all 63, drawn by random.Random(20261201).sample."""
