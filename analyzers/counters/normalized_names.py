"""Normalizes the kernel names of different tools.

One tool writes a kernel as `void at::native::f<float, 4ul, true>(int)::{lambda(float)#2}`, another as
`void at::f<float, 4, 1>(int)::[lambda(float) (instance 2)]`. The common form has no namespaces, return types and
parameter types, and a single notation for constants and lambdas.
"""

import re

_LAMBDA = re.compile(r"\{lambda\([^{}]*\)#(\d+)\}|\[lambda\([^\[\]]*\) \(instance (\d+)\)\]")
_PARENTHESES = re.compile(r"\([^()]*\)")
_INSIDE_A_FUNCTION = re.compile(r"::operator\s*(?:const\s*)?::|::(?=lambda\d)")
_NAMESPACE = re.compile(r"(?:\b\w+|<unnamed>)::")
_WORDS = re.compile(r"\b(?:void|const)\b")
_SUFFIX = re.compile(r"\b(\d+)[uUlL]+\b")
_SPACE = re.compile(r"\s+")
_MANGLED_PART = re.compile(r"\d+")
_LONGEST = 20_000


def full(name: str) -> str:
    """Return the name with its template arguments, without namespaces and parameters."""
    text = _LAMBDA.sub(lambda match: f"lambda{match[1] or match[2]}", name[:_LONGEST])
    text = _without_parameters(text.replace("(anonymous namespace)", "<unnamed>"))
    text = _WORDS.sub("", _INSIDE_A_FUNCTION.sub(".", text))
    text = _SUFFIX.sub(r"\1", _NAMESPACE.sub("", text))
    text = re.sub(r"\btrue\b", "1", re.sub(r"\bfalse\b", "0", text))
    return _SPACE.sub("", text)


def base(name: str) -> str:
    """Return the function's own name from a demangled or mangled name."""
    if name.startswith("_Z"):
        return _last_part(name)
    return full(name).split("<", 1)[0]


def _without_parameters(text: str) -> str:
    shorter = _PARENTHESES.sub("", text)
    while shorter != text:
        text, shorter = shorter, _PARENTHESES.sub("", shorter)
    return shorter


def _last_part(mangled: str) -> str:
    """Return the last of the length-prefixed parts of a mangled name (Itanium C++ ABI), which is the function."""
    at, last = 3 if mangled.startswith("_ZN") else 2, ""
    while match := _MANGLED_PART.match(mangled, at):
        end = match.end() + min(int(match[0][:6]), _LONGEST)
        last, at = mangled[match.end() : end], end
    return last or mangled
