"""Parse lines, the names of Python frames and of annotations, and classify them by who wrote the code they belong to.

The profiler names a frame `file(line): function` and cuts the longest entry of `sys.path` off the file. A frame of the
standard library is therefore `json/encoder.py(183): encode`, one of an installed package `transformers/…`, and one of
the user's script `train.py(42): forward`: relative files need the names of known packages.
"""

from __future__ import annotations

import re
import sys
from enum import IntEnum
from functools import lru_cache
from typing import Any

from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import RECORDER_FRAME


class FrameOrigin(IntEnum):
    """Who wrote the code of a frame."""

    USER = 0
    LIBRARY = 1  # an installed package other than torch
    INTERNAL = 2  # torch, Triton, generated code, the profiler, the standard library, built-in functions, modules


class AnnotationOrigin(IntEnum):
    """Who wrote an annotation."""

    USER = 0
    TORCH = 1  # names what the program did, such as `Optimizer.step#AdamW.step`
    INTERNAL = 2  # says nothing about the program, such as `Torch-Compiled Region: 0/0`


@record
class Frame:
    """A Python frame. `file`: as recorded. `line`: where the function begins; None for a frame that was open when the
    recording began, of which the profiler records the line that ran at that moment."""

    file: str
    line: int | None
    function: str
    origin: FrameOrigin

    @property
    def text(self) -> str:
        """Return `file(line): function` without the folder; `__init__.py` and `__main__.py` keep their package.

        Without a line: `file: function`.
        """
        parts = re.split(r"[/\\]", self.file)
        kept = parts[-2:] if parts[-1] in ("__init__.py", "__main__.py") else parts[-1:]
        return f"{'/'.join(kept)}{'' if self.line is None else f'({self.line})'}: {self.function}"


MODULE_CALL_PREFIX = "nn.Module: "
AUTOGRAD_ENGINE_PREFIX = "autograd::engine::evaluate_function"
MODULE_CODE = "<module>"  # what Python calls the code of a file outside its functions

_FRAME = compile_later(r"(?P<file>.+?)\((?P<line>\d{1,9})\): (?P<function>.*)", re.DOTALL)

_INTERACTIVE = ("<ipython-input-", "<stdin>")
"""Names that Python gives to the user's own code in notebooks and at a prompt; other `<…>` names are generated code."""

_TORCH = compile_later(
    r"(^|[/\\])(torch[/\\](_|nn|optim|autograd|utils|distributed|distributions|profiler|cuda|cpu|xpu|mps|mtia|jit|fx|"
    r"func|functional|library|overrides|serialization|storage|random|ao|amp|backends|compiler|export|futures|hub|masked|"
    r"multiprocessing|nested|onnx|package|quantization|sparse|special|testing|signal|fft|linalg|accelerator|types|"
    r"quasirandom|return_types|torch_version|version)"
    r"|triton[/\\](runtime|compiler|backends|knobs|language|tools|testing|autotuner)"
    r"|functorch[/\\]|torchgen[/\\])"
)
"""Folders of torch and Triton, wherever they are installed or checked out."""

_GENERATED = compile_later(r"torchinductor_|torch_compile_debug|[/\\]triton_cache[/\\]|[/\\]\.triton[/\\]")
_INSTALLED = compile_later(r"(^|[/\\])(site-packages|dist-packages)[/\\]")
_PYTHON_HOME = compile_later(r"[/\\][Pp]ython-?\d(\.?\d+)*[/\\]")
"""`/usr/lib/python3.12/…`: after `_INSTALLED` has been tested, the standard library."""

_STANDARD_PACKAGES_TEXT = """
asyncio collections concurrent ctypes curses dbm distutils email encodings ensurepip html http importlib json lib2to3
logging multiprocessing pathlib pydoc_data re sqlite3 string sysconfig tkinter tomllib unittest urllib venv wsgiref
xml xmlrpc zipfile zoneinfo _pyrepl compression
"""
_STANDARD_PACKAGES = frozenset(_STANDARD_PACKAGES_TEXT.split())
"""Folders of the standard library. Its files in no folder are `sys.stdlib_module_names`."""

_LIBRARIES_TEXT = """
IPython PIL PyQt5 absl accelerate aiohttp aiter albumentations anyio apex attr auto_gptq av bitsandbytes click
colossalai cutlass cv2 dask datasets decord deep_ep deep_gemm deepspeed detectron2 dgl diffusers dill docutils einops
fairscale fastapi fbgemm_gpu filelock fire flash_attn flash_attn_interface flashinfer flax fla fsspec gradio gym
gymnasium h5py habana_frameworks huggingface_hub hydra ignite imageio intel_extension_for_pytorch ipykernel ipywidgets
jax joblib kornia librosa liger_kernel lightning lightning_fabric lightning_utilities loguru mamba_ssm matplotlib
mlflow mmcv mmdet mmengine mmseg monai mpmath msgspec multiprocess natten nemo networkx nltk numba numexpr numpy
omegaconf onnx onnxruntime open_clip optimum orjson packaging pandas peft pkg_resources psutil pyarrow pydantic
pydantic_core pytest pytorch_lightning ray regex requests rich safetensors scipy seaborn sentence_transformers
sentencepiece setuptools sgl_kernel sglang six skimage sklearn soundfile spacy starlette sympy tensorboard
tensorboardX tensorflow tensorrt_llm tensorstore tiktoken timm tokenizers torch_geometric torch_npu torch_scatter
torch_tensorrt torch_xla torchao torchaudio torchdata torchmetrics torchrec torchtext torchtune torchvision tornado
tqdm traitlets transformer_engine transformers trl typing_extensions typeguard ultralytics unsloth urllib3 uvicorn
uvloop vllm wandb webdataset wrapt xformers xgrammar yaml zmq zstandard triton triton_kernels torch
"""
_LIBRARIES = frozenset(_LIBRARIES_TEXT.split())
"""Names under which installed packages import; relative files below them belong to no user."""

_TORCH_ANNOTATIONS = compile_later(
    r"Optimizer\.(step|zero_grad)#|enumerate\(DataLoader\)#|.*DataLoaderIter\.__next__|"
    r"nccl:|gloo:|mpi:|ucc:|xccl:|hccl:|"
    r"DistributedDataParallel\.|FullyShardedDataParallel\.|FSDP(::|\.)|DataParallel\.forward|fsdp::|Checkpoint|"
    r"record_param_comms|torch\.distributed|\[pl\]\[profile\]"
)
_INTERNAL_ANNOTATIONS = compile_later(
    r"ProfilerStep#|Torch-Compiled Region|TorchDynamo|## Call CompiledFxGraph|Pregraph bytecode|AOTDispatcher |"
    r"CompiledFunction|CachingAutotuner|.*\(dynamo_timed\)|PyTorch Profiler|c10d::|_c10d_functional::"
)


def parse_frame(name: str) -> Frame | None:
    """Parse the name of a Python frame; None for module calls, built-in functions and other names."""
    if name.startswith((MODULE_CALL_PREFIX, "<built-in ")):
        return None
    match = _FRAME.fullmatch(name)
    if match is None:
        return None
    file = match["file"]
    return Frame(file, int(match["line"]), match["function"], classify_file(file))


def classify_file(file: str) -> FrameOrigin:
    if file.startswith("<"):
        return FrameOrigin.USER if file.startswith(_INTERACTIVE) else FrameOrigin.INTERNAL
    if _TORCH.search(file) or RECORDER_FRAME.search(file) or _GENERATED.search(file):
        return FrameOrigin.INTERNAL
    if _INSTALLED.search(file):
        return FrameOrigin.LIBRARY
    parts = re.split(r"[/\\]", file)
    if parts[0] == "" or ":" in parts[0]:  # absolute
        return FrameOrigin.INTERNAL if _PYTHON_HOME.search(file) else FrameOrigin.USER
    if len(parts) == 1:
        stem = file.removesuffix(".py")
        if stem in sys.stdlib_module_names:
            return FrameOrigin.INTERNAL
        return FrameOrigin.LIBRARY if stem in _LIBRARIES else FrameOrigin.USER
    if parts[0] in _STANDARD_PACKAGES:
        return FrameOrigin.INTERNAL
    return FrameOrigin.LIBRARY if parts[0] in _LIBRARIES else FrameOrigin.USER


@lru_cache(maxsize=4096)
def classify_annotation(name: str) -> AnnotationOrigin:
    if _INTERNAL_ANNOTATIONS.match(name):
        return AnnotationOrigin.INTERNAL
    return AnnotationOrigin.TORCH if _TORCH_ANNOTATIONS.match(name) else AnnotationOrigin.USER


FRAME, ANNOTATION, MODULE = "frame", "annotation", "module"

UNKNOWN_LINE = "line unknown: this frame began before the recording"


@record
class SourceLine:
    """A line of the program, or the annotation or module that is known instead. Texts are as recorded: `clean` them.

    `kind`: "frame", "annotation" or "module". `file`, `line`: only of frames. `line` is where the function begins,
    because the profiler records no other; None for a frame that was open when the recording began, of which no line is
    known. `text`: to show, such as "train.py(42): forward". `from_forward`: it belongs
    to the forward op of a backward event. `library`: the innermost frame of an installed package that the line called
    on the way to the event, "" for none.
    """

    kind: str
    file: str | None
    line: int | None
    function: str
    text: str
    from_forward: bool = False
    library: str = ""

    @property
    def location(self) -> str | None:
        """Return `file:line`, the file alone where the line is unknown, None without a file."""
        return self.file if self.file is None or self.line is None else f"{self.file}:{self.line}"

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON; `library` is None where there is none."""
        return {
            "kind": self.kind,
            "text": self.text,
            "function": self.function,
            "from_forward": self.from_forward,
            "library": self.library or None,
        }


def parse_recorded_line(args: dict[str, Any]) -> SourceLine | None:
    """Parse `Call stack` (frames joined by `;`, innermost first) or `Module Hierarchy` of an op's args."""
    stack, hierarchy = args.get("Call stack"), args.get("Module Hierarchy")
    library = None
    for name in stack.split(";") if isinstance(stack, str) else []:
        frame = parse_frame(name.strip())
        if frame is not None and frame.origin is FrameOrigin.USER:
            return build_frame_line(frame, library)
        if frame is not None and frame.origin is FrameOrigin.LIBRARY:
            library = library or frame
    if library is not None:
        return build_frame_line(library)
    if isinstance(hierarchy, str) and hierarchy.strip():
        return SourceLine(MODULE, None, None, hierarchy.strip(), hierarchy.strip())
    return None


def build_frame_line(frame: Frame, library: Frame | None = None) -> SourceLine:
    text = frame.text if frame.line is not None else f"{frame.text} ({UNKNOWN_LINE})"
    return SourceLine(FRAME, frame.file, frame.line, frame.function, text, library=library.text if library else "")


def build_annotation_line(name: str) -> SourceLine:
    return SourceLine(ANNOTATION, None, None, name, name)
