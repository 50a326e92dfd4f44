"""Taking C++ names apart: brackets, qualified names, template arguments, data types.

Demangled names are read by counting brackets, which is enough for what compilers print. Names that a profiler left
mangled (`_ZN…`) are not demangled: their identifiers are taken out in order, which says what the kernel is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_DEPTH_CHANGE = {"<": 1, "(": 1, "{": 1, "[": 1, ">": -1, ")": -1, "}": -1, "]": -1, "->": 0}
_BRACKET = re.compile(r"->|[<>(){}\[\]]")
_SEPARATOR_PATTERNS = {separator: re.compile(rf"->|[<>(){{}}\[\]]|{separator}") for separator in ("::", ",", " ")}
_OPENING_BRACKET = re.compile(r"[<(]")
_KERNEL_DESCRIPTOR = re.compile(r"(\.kd| \[clone [^\]]*\])+$")
_LITERAL = re.compile(r"^(?:\([^)]*\))?(-?\d+)(?:[uUlL]*)$")

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


@dataclass(frozen=True, slots=True)
class QualifiedName:
    """`at::native::(anonymous namespace)::f<float, 4>(int)`: path ("at", "native", "{anonymous}", "f"), arguments
    ("float", "4"), the last component's own."""

    path: tuple[str, ...]
    arguments: tuple[str, ...]
    components: tuple[str, ...]  # the path with its template and call brackets

    @property
    def base(self) -> str:
        return self.path[-1] if self.path else ""

    @property
    def root(self) -> str:
        return self.path[0] if self.path else ""

    @property
    def scope(self) -> str:
        """Everything before the last component, template arguments left out."""
        return "::".join(self.path[:-1])

    def argument(self, index: int) -> str:
        """A template argument, "" where there are fewer."""
        return self.arguments[index] if index < len(self.arguments) else ""


def parse_function(name: str) -> QualifiedName:
    """The function that a demangled signature names, its return type and parameters left out."""
    text = _KERNEL_DESCRIPTOR.sub("", name.strip())
    text = text.replace("(anonymous namespace)", "{anonymous}").replace("operator()", "operator{}")
    if text.startswith(("_ZN", "_Z")):
        return parse_mangled_name(text)
    end = _find_parameter_list(text)
    head = _split_outside_brackets(text[:end], " ")
    return parse_qualified_name(head[-1] if head else text)


def parse_qualified_name(text: str) -> QualifiedName:
    """A type or function without parameters of its own: `a::b<c>::d<e>`."""
    components = _split_outside_brackets(text.strip(), "::")
    path = tuple(
        one if one.startswith("{") else _OPENING_BRACKET.split(one, maxsplit=1)[0] or one for one in components
    )
    return QualifiedName(path, parse_template_arguments(components[-1]) if components else (), tuple(components))


def parse_template_arguments(component: str) -> tuple[str, ...]:
    """`f<a, b<c> >` → ("a", "b<c>"): the arguments of one component."""
    start = component.find("<")
    if start < 0 or component.startswith("{"):
        return ()
    depth = 0
    end = len(component)  # without a closing bracket, the profiler cut the name short
    for mark in _BRACKET.finditer(component, start):
        depth += _DEPTH_CHANGE[mark.group()]
        if depth == 0:
            end = mark.start()
            break
    return tuple(part.strip() for part in _split_outside_brackets(component[start + 1 : end], ","))


def parse_integer(text: str) -> int | None:
    """`128`, `2ul`, `(at::native::ADAM_MODE)1` as an integer; None for anything else."""
    found = _LITERAL.match(text.strip())
    return int(found.group(1)) if found else None


def parse_dtype(text: str) -> str | None:
    """Our short name for a C++ type; None for what is no element type."""
    plain = text.strip()
    for noise in ("const", "volatile", "&", "*"):
        plain = plain.replace(noise, "")
    plain = " ".join(plain.split())
    known = DTYPES.get(plain)
    if known:
        return known
    if "OpaqueType<" in plain:
        size = parse_integer(plain[plain.rfind("<") + 1 : plain.rfind(">")])
        return f"{size}-byte" if size else None
    return None


def parse_dtypes(texts: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """The element types among template arguments, each once, in order."""
    found = (parse_dtype(text) for text in texts)
    return tuple(dict.fromkeys(one for one in found if one))


def parse_float_dtypes(texts: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """The floating types among template arguments; cuBLAS and its like put index types in front of them."""
    return tuple(one for one in parse_dtypes(texts) if one.startswith(("fp", "bf", "tf", "complex")))


def parse_lambda_dtypes(text: str) -> tuple[str, ...]:
    """Parameter types of the last lambda in `f(…)::{lambda()#2}::operator{}() const::{lambda(float, bool)#1}`."""
    start = text.rfind("{lambda(")
    if start < 0:
        return ()
    inner = text[start + len("{lambda(") :]
    end = inner.find(")#")
    return parse_dtypes(_split_outside_brackets(inner[: end if end >= 0 else len(inner)], ","))


_SOURCE_NAME = re.compile(r"(?<![\dSTF])(?<!L[bhijlmstxy])(\d+)(?=[A-Za-z_])")
"""The length in front of an identifier; not the digits of a literal (`Li64E`), a substitution or a parameter."""


_DIGITS = re.compile(r"\d+")
_MAX_LENGTH_DIGITS = 9
"""Digits: no name is so long, and of thousands of them Python makes no integer."""


def parse_mangled_name(text: str) -> QualifiedName:
    """An Itanium-mangled name: the path is that of the function, the components all identifiers in order."""
    found = extract_identifiers(text)
    path = []
    place = 3 if text.startswith("_ZN") else 2
    while match := _DIGITS.match(text, place):
        end = _find_identifier_end(text, match.end(), match.group())
        path.append(text[match.end() : end].replace("_GLOBAL__N_1", "{anonymous}"))
        place = end
    return QualifiedName(tuple(path or found[:1]), (), tuple(found))


def extract_identifiers(text: str) -> list[str]:
    """Every identifier of a mangled name, in order."""
    found = []
    place = 2
    while match := _SOURCE_NAME.search(text, place):
        place = _find_identifier_end(text, match.end(), match.group(1))
        found.append(text[match.end() : place])
    return found


def _find_identifier_end(text: str, begin: int, length: str) -> int:
    """Where an identifier of so many characters ends: with the text, if that is all digits and no length."""
    return min(begin + int(length[:_MAX_LENGTH_DIGITS]), len(text))


def _find_parameter_list(text: str) -> int:
    """Where the parameter list of a signature opens; the end of the text where there is none."""
    depth = 0
    for mark in _BRACKET.finditer(text):
        letter = mark.group()
        if letter == "(" and depth == 0 and mark.start():
            return mark.start()
        depth += _DEPTH_CHANGE[letter]
    return len(text)


def _split_outside_brackets(text: str, separator: str) -> list[str]:
    """`text` cut at each separator that lies outside brackets; empty pieces dropped."""
    if separator not in text:
        return [text] if text.strip() else []
    parts = []
    depth = start = 0
    for mark in _SEPARATOR_PATTERNS[separator].finditer(text):
        letter = mark.group()
        if letter != separator:
            depth += _DEPTH_CHANGE[letter]
        elif depth == 0:
            parts.append(text[start : mark.start()])
            start = mark.end()
    parts.append(text[start:])
    return [part for part in parts if part.strip()]
