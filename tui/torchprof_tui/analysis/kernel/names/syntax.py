"""Parse C++ names: brackets, qualified names, template arguments, data types.

Demangled names are parsed by counting brackets, which is sufficient for the output of compilers. Mangled names (`_ZN…`)
are not demangled: only their identifiers are extracted in order, which is sufficient to identify the kernel.
"""

from __future__ import annotations

from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.core.records import record

_DEPTH_CHANGE = {"<": 1, "(": 1, "{": 1, "[": 1, ">": -1, ")": -1, "}": -1, "]": -1, "->": 0}
_BRACKET = compile_later(r"->|[<>(){}\[\]]")
_SEPARATOR_PATTERNS = {separator: compile_later(rf"->|[<>(){{}}\[\]]|{separator}") for separator in ("::", ",", " ")}
_OPENING_BRACKET = compile_later(r"[<(]")
_KERNEL_DESCRIPTOR = compile_later(r"(\.kd| \[clone [^\]]*\])+$")
_LITERAL = compile_later(r"^(?:\([^)]*\))?(-?\d+)(?:[uUlL]*)$")

DTYPES = {
    "float": "fp32",
    "float2": "fp32",
    "double": "fp64",
    "c10::BFloat16": "bf16",
    "BFloat16": "bf16",
    "__nv_bfloat16": "bf16",
    "__hip_bfloat16": "bf16",
    "hip_bfloat16": "bf16",
    "cutlass::bfloat16_t": "bf16",
    "nv_bfloat16": "bf16",
    "c10::Half": "fp16",
    "Half": "fp16",
    "__half": "fp16",
    "half": "fp16",
    "_Float16": "fp16",
    "cutlass::half_t": "fp16",
    "cutlass::tfloat32_t": "tf32",
    "cutlass::float_e4m3_t": "fp8 e4m3",
    "cutlass::float_e5m2_t": "fp8 e5m2",
    "cutlass::float_e2m1_t": "fp4 e2m1",
    "c10::Float8_e4m3fn": "fp8 e4m3",
    "c10::Float8_e5m2": "fp8 e5m2",
    "c10::Float8_e4m3fnuz": "fp8 e4m3",
    "c10::Float8_e5m2fnuz": "fp8 e5m2",
    "__nv_fp8_e4m3": "fp8 e4m3",
    "__nv_fp8_e5m2": "fp8 e5m2",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
    "long": "int64",
    "long long": "int64",
    "int": "int32",
    "short": "int16",
    "char": "int8",
    "signed char": "int8",
    "int8_t": "int8",
    "unsigned char": "uint8",
    "uint8_t": "uint8",
    "unsigned int": "uint32",
    "unsigned long": "uint64",
    "bool": "bool",
}

TYPE_BYTES = {
    "double": 8,
    "float": 4,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "c10::Float8_e4m3fn": 1,
    "c10::Float8_e5m2": 1,
    "c10::Float8_e4m3fnuz": 1,
    "c10::Float8_e5m2fnuz": 1,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
    "long int": 8,
    "long": 8,
    "int": 4,
    "short int": 2,
    "short": 2,
    "char": 1,
    "signed char": 1,
    "unsigned char": 1,
    "bool": 1,
}
"""Bytes of one element, by the C++ type of a tensor as the profiler writes it."""


@record
class QualifiedName:
    """`at::native::(anonymous namespace)::f<float, 4>(int)`: path ("at", "native", "{anonymous}", "f"), arguments
    ("float", "4") of the last component.
    """

    path: tuple[str, ...]
    arguments: tuple[str, ...]
    components: tuple[str, ...]  # the path with its template and call brackets

    @property
    def base(self) -> str:
        """The last component, without brackets."""
        return self.path[-1] if self.path else ""

    @property
    def root(self) -> str:
        """The first component, without brackets."""
        return self.path[0] if self.path else ""

    @property
    def scope(self) -> str:
        """Everything before the last component, without template arguments."""
        return "::".join(self.path[:-1])

    def argument(self, index: int) -> str:
        """Return a template argument, "" if there are fewer."""
        return self.arguments[index] if index < len(self.arguments) else ""


def parse_function(name: str) -> QualifiedName:
    """Parse the function of a demangled signature, without return type and parameters."""
    text = _KERNEL_DESCRIPTOR.sub("", name.strip())
    text = text.replace("(anonymous namespace)", "{anonymous}").replace("operator()", "operator{}")
    if text.startswith("_Z"):
        return parse_mangled_name(text)
    end = len(text)
    depth = (0, 0)
    for mark in _BRACKET.finditer(text):
        if mark.group() == "(" and depth[0] == 0 and mark.start():
            end = mark.start()  # the parameter list
            break
        depth = _update_depth(depth, mark.group())
    head = _split_outside_brackets(text[:end], " ")
    return parse_qualified_name(head[-1] if head else text)


def parse_qualified_name(text: str) -> QualifiedName:
    """Parse a type, or a function without parameters: `a::b<c>::d<e>`."""
    components = _split_outside_brackets(text.strip(), "::")
    path = tuple(
        part if part.startswith("{") else _OPENING_BRACKET.split(part, maxsplit=1)[0] or part for part in components
    )
    return QualifiedName(path, parse_template_arguments(components[-1]) if components else (), tuple(components))


def parse_template_arguments(component: str) -> tuple[str, ...]:
    """Parse the arguments of one component: `f<a, b<c> >` → ("a", "b<c>")."""
    start = component.find("<")
    if start < 0 or component.startswith("{"):
        return ()
    depth = (0, 0)
    end = len(component)  # without a closing bracket, the profiler truncated the name
    for mark in _BRACKET.finditer(component, start):
        depth = _update_depth(depth, mark.group())
        if depth[0] == 0:
            end = mark.start()
            break
    return tuple(part.strip() for part in _split_outside_brackets(component[start + 1 : end], ","))


def parse_integer(text: str) -> int | None:
    """Parse an integer such as `128`, `2ul`, `(at::native::ADAM_MODE)1`; None for anything else."""
    match = _LITERAL.match(text.strip())
    return int(match.group(1)) if match else None


def parse_dtype(text: str) -> str | None:
    """Parse a C++ type into a short name such as "bf16"; None if it is no element type."""
    plain = text.strip()
    for qualifier in ("const", "volatile", "&", "*"):
        plain = plain.replace(qualifier, "")
    plain = " ".join(plain.split())
    known = DTYPES.get(plain)
    if known:
        return known
    if "OpaqueType<" in plain:
        size = parse_integer(plain[plain.rfind("<") + 1 : plain.rfind(">")])
        return f"{size}-byte" if size else None
    return None


def parse_dtypes(texts: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """Parse the element types among template arguments, each once, in order."""
    dtypes = (parse_dtype(text) for text in texts)
    return tuple(dict.fromkeys(dtype for dtype in dtypes if dtype))


def parse_float_dtypes(texts: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """Parse the floating types among template arguments; in libraries like cuBLAS, index types precede them."""
    return tuple(dtype for dtype in parse_dtypes(texts) if dtype.startswith(("fp", "bf", "tf", "complex")))


def parse_lambda_dtypes(text: str) -> tuple[str, ...]:
    """Parse parameter types of the last lambda in `f(…)::{lambda()#2}::operator{}() const::{lambda(float, bool)#1}`."""
    start = text.rfind("{lambda(")
    if start < 0:
        return ()
    inner = text[start + len("{lambda(") :]
    end = inner.find(")#")
    return parse_dtypes(_split_outside_brackets(inner[: end if end >= 0 else len(inner)], ","))


_SOURCE_NAME = compile_later(r"(?<![\dSTF])(?<!L[bhijlmstxy])(\d+)(?=[A-Za-z_])")
"""The length before an identifier; not the digits of a literal (`Li64E`), a substitution or a parameter."""


_DIGITS = compile_later(r"\d+")
_MAX_LENGTH_DIGITS = 9
"""Digits of a length: names are shorter, and Python refuses to convert thousands of digits to an integer."""


def parse_mangled_name(text: str) -> QualifiedName:
    """Parse an Itanium-mangled name: the path is that of the function, the components all identifiers in order."""
    identifiers = extract_identifiers(text)
    path = []
    position = 3 if text.startswith("_ZN") else 2
    while match := _DIGITS.match(text, position):
        position = match.end() + int(match.group()[:_MAX_LENGTH_DIGITS])  # beyond the text, where it is no length
        path.append(text[match.end() : position].replace("_GLOBAL__N_1", "{anonymous}"))
    return QualifiedName(tuple(path or identifiers[:1]), (), tuple(identifiers))


def extract_identifiers(text: str) -> list[str]:
    """Extract all identifiers of a mangled name, in order."""
    identifiers = []
    position = 2
    while match := _SOURCE_NAME.search(text, position):
        position = match.end() + int(match[1][:_MAX_LENGTH_DIGITS])
        identifiers.append(text[match.end() : position])
    return identifiers


def _update_depth(depth: tuple[int, int], bracket: str) -> tuple[int, int]:
    """Update (all open brackets, open ones except <) by one bracket.

    Inside parentheses `<` and `>` are comparisons (`enable_if<(((8)>(0))), void>`) or belong to a type that ends there.
    """
    total, inner = depth
    if bracket in "<>":
        return (total, inner) if inner > 0 else (total + _DEPTH_CHANGE[bracket], inner)
    change = _DEPTH_CHANGE[bracket]
    return total + change, inner + change


def _split_outside_brackets(text: str, separator: str) -> list[str]:
    """Split `text` at each separator outside brackets, without empty parts."""
    if separator not in text:
        return [text] if text.strip() else []
    parts = []
    depth = (0, 0)
    start = 0
    for mark in _SEPARATOR_PATTERNS[separator].finditer(text):
        letter = mark.group()
        if letter != separator:
            depth = _update_depth(depth, letter)
        elif depth[0] == 0:
            parts.append(text[start : mark.start()])
            start = mark.end()
    parts.append(text[start:])
    return [part for part in parts if part.strip()]
