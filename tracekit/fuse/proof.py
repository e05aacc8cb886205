"""Checks a kernel against its reference: sizes, layouts, extremes, gradients; on a GPU or in Triton's interpreter."""

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt
from pathlib import Path
from types import ModuleType
from typing import Any

from tracekit.analyzers.core import TracekitError
from tracekit.fuse.catalogue import TEMPLATES, Sizes, Template
from tracekit.run import require

Inputs = tuple[Any, ...]

_ROUNDINGS = 4
"""Allowed difference between a kernel and its reference, in roundings of their type."""
_STEPS = {"torch.int8": 1}
"""Allowed difference of integers, which come from rounding."""
_SEED = 1
_LARGE = 1e3


@dataclass(frozen=True)
class Check:
    """One comparison of a kernel with its reference."""

    name: str
    passed: bool | None
    """None: no kernel ran here."""
    error: float
    """Largest difference, relative to the allowed difference."""
    detail: str = ""


def interpret() -> None:
    """Make Triton interpret kernels on the CPU. Must be called before a kernel's file is imported."""
    os.environ["TRITON_INTERPRET"] = "1"


def interpret_without_gpu() -> None:
    """Select the interpreter if torch has no GPU. Must be called before Triton is imported."""
    if not _has_gpu():
        interpret()


def check_interpreter() -> None:
    """Raise TracekitError if Triton cannot interpret kernels here, because it was imported to compile them."""
    language = sys.modules.get("triton.language")
    if not _has_gpu() and type(getattr(language, "sum", None)).__name__ == "JITFunction":
        raise TracekitError(
            "Triton was imported before its interpreter was chosen.",
            "There is no GPU here, and it chooses once in a process.",
            "Call tracekit fuse in a separate process, or set TRITON_INTERPRET=1 before Python starts.",
        )


def _has_gpu() -> bool:
    return Path("/dev/nvidiactl").exists()


def prove(kernel: ModuleType, template: str, dtypes: Sequence[Any], *, trains: bool, device: str) -> list[Check]:
    """Return every comparison of the kernel with its reference, in types that it is for. An exception is a failure."""
    torch, known = require("torch"), TEMPLATES[template]
    cases = partial(_cases, kernel, known, trains=trains, device=device)
    wanted = [dtype for dtype in dtypes if dtype in getattr(kernel, "DTYPES", dtypes)]
    checks = [_tried(name, run) for dtype in wanted for name, run in cases(dtype)]
    if trains and known.gradients and known.small:
        checks.append(_tried("gradcheck", lambda: _gradcheck(torch, kernel, known, device)))
    return checks


def failed(checks: Sequence[Check]) -> list[Check]:
    return [check for check in checks if check.passed is False]


class _NotRunError(Exception):
    """A kernel called its reference, whose result it would then be compared with."""


def _fused(kernel: ModuleType, inputs: Inputs) -> Any:
    """Return the result of the kernel. Raises _NotRunError if it is that of the reference."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise _NotRunError

    reference = kernel.reference
    kernel.reference = refuse  # type: ignore[attr-defined]
    try:
        return kernel.fused(*inputs)
    finally:
        kernel.reference = reference  # type: ignore[attr-defined]


def _tried(name: str, run: Callable[[], tuple[float, str]]) -> Check:
    require("torch").manual_seed(_SEED)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # numpy warns of infinities in the interpreter
            size, detail = run()
    except _NotRunError:
        return Check(name, None, 0.0, "without its GPU it returns its reference")
    except Exception as error:  # any exception of a kernel is a failed check
        return Check(name, False, float("inf"), f"{type(error).__name__}: {error}"[:300])
    return Check(name, size <= 1.0, size, detail)


Case = tuple[str, Callable[[], tuple[float, str]]]


def _cases(kernel: ModuleType, known: Template, dtype: Any, *, trains: bool, device: str) -> Iterator[Case]:
    kind = str(dtype).removeprefix("torch.")
    for sizes in known.odd:
        label = f"{kind}, {', '.join(f'{name} {value}' for name, value in sizes.items())}"
        length = int(sizes.get(known.reduced, 1))
        example = partial(_example, kernel, dtype, device, sizes)
        yield label, partial(_later, _compare, kernel, example, length)
        for how in ("spread", "rows apart"):
            laid = partial(_laid_out, example, how)
            yield f"{label}, {how}", partial(_later, _compare, kernel, laid, length)
        if known.extremes:
            yield f"{label}, extremes", partial(_later, partial(_extremes, known), kernel, example, length)
        if trains and known.gradients:
            laid = partial(_laid_out, example, "rows apart")
            for name, inputs in (("gradients", example), ("gradients, rows apart", laid)):
                yield f"{label}, {name}", partial(_later, partial(_gradients, known), kernel, inputs, length)


def _example(kernel: ModuleType, dtype: Any, device: str, sizes: Sizes) -> Inputs:
    return tuple(kernel.example(dtype, device, **sizes))


def _later(
    check: Callable[[ModuleType, Inputs, int], tuple[float, str]],
    kernel: ModuleType,
    example: Callable[[], Inputs],
    length: int,
) -> tuple[float, str]:
    return check(kernel, example(), length)


def _compare(kernel: ModuleType, inputs: Inputs, length: int) -> tuple[float, str]:
    """Compare results with the reference in fp64."""
    results, truth = _several(_fused(kernel, inputs)), _several(kernel.reference(*map(_wide, inputs)))
    if len(results) != len(truth):
        return float("inf"), f"{len(results)} results in place of {len(truth)}"
    eps = _coarsest(inputs)
    return max(_error(got, wanted, length, eps) for got, wanted in zip(results, truth, strict=True)), ""


def _gradients(known: Template, kernel: ModuleType, inputs: Inputs, length: int) -> tuple[float, str]:
    """Compare gradients with those of the reference in fp64, for one set of output gradients."""
    torch = require("torch")
    wide, places = tuple(map(_wide, inputs)), [i for i in known.gradients if i < len(inputs)]
    ours = _gradients_of(lambda *given: _fused(kernel, given), inputs, places)
    generator = torch.Generator(device=inputs[0].device).manual_seed(_SEED)
    results = _several(ours[0])
    gradients = [torch.randn(r.shape, generator=generator, device=r.device, dtype=torch.float64) for r in results]
    mine = torch.autograd.grad(results, ours[1], [g.to(r.dtype) for g, r in zip(gradients, results, strict=True)])
    truth = _gradients_of(kernel.reference, wide, places)
    expected = _several(truth[0])
    theirs = torch.autograd.grad(expected, truth[1], [g.to(r.dtype) for g, r in zip(gradients, expected, strict=True)])
    rows = inputs[0].numel() // max(1, inputs[0].shape[-1])
    eps = _coarsest(inputs)
    return max(_error(a, b, max(length, rows), eps) for a, b in zip(mine, theirs, strict=True)), ""


def _gradients_of(function: Any, inputs: Inputs, places: list[int]) -> tuple[Any, list[Any]]:
    changed = [each.detach().requires_grad_() if i in places else each for i, each in enumerate(inputs)]
    return function(*changed), [changed[i] for i in places]


def _extremes(known: Template, kernel: ModuleType, inputs: Inputs, length: int) -> tuple[float, str]:
    """Compare for large, zero and infinite inputs: the same results must be infinite and NaN."""
    torch, filled = require("torch"), []
    for i, each in enumerate(inputs):
        if i in known.activations:
            each = each.clone()
            flat = each.reshape(-1) if each.is_contiguous() else each.flatten()
            for at, value in enumerate((_LARGE, -_LARGE, 0.0, float("inf"), -float("inf"))):
                flat[at * 7 % flat.numel()] = value
            each = flat.view(each.shape)
        filled.append(each)
    worst = 0.0
    for got, wanted in zip(_several(_fused(kernel, tuple(filled))), _several(kernel.reference(*filled)), strict=True):
        for kind in (torch.isnan, torch.isposinf, torch.isneginf):
            if not torch.equal(kind(got), kind(wanted)):
                return float("inf"), f"{kind.__name__} differs"
        finite = torch.isfinite(wanted)
        worst = max(worst, _error(got[finite], wanted[finite].double(), length, _coarsest(inputs)))
    return worst, ""


def _gradcheck(torch: Any, kernel: ModuleType, known: Template, device: str) -> tuple[float, str]:
    """Compare gradients with finite differences in fp32, because kernels compute in fp32 for all types."""
    inputs = tuple(kernel.example(torch.float32, device, **(known.small or {})))
    places = [i for i in known.gradients if i < len(inputs)]
    for i in places:
        inputs[i].requires_grad_()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Input #.* requires gradient and is not a double")
        passed = torch.autograd.gradcheck(
            lambda *given: _fused(kernel, given),
            inputs,
            eps=1e-2,
            atol=2e-2,
            rtol=2e-2,
            nondet_tol=1e-5,
            raise_exception=False,
        )
    return (0.0 if passed else float("inf")), "" if passed else "differs from the quotient of differences"


def _laid_out(example: Callable[[], Inputs], how: str) -> Inputs:
    """Return the same values with elements or rows that are not contiguous. No two inputs have the same strides."""
    torch = require("torch")

    def laid(x: Any, factor: int) -> Any:
        room = torch.zeros(*x.shape[:-1], factor * x.shape[-1], dtype=x.dtype, device=x.device)
        part = room[..., ::factor] if how == "spread" else room[..., x.shape[-1] : 2 * x.shape[-1]]
        part.copy_(x)
        return part

    return tuple(laid(each, 2 + i) if isinstance(each, torch.Tensor) else each for i, each in enumerate(example()))


def _error(got: Any, wanted: Any, length: int, eps: float) -> float:
    """Return the largest difference, relative to that allowed for the type and the number of summands."""
    torch = require("torch")
    if not got.numel():
        return 0.0
    if not got.is_floating_point():
        return float((got.long() - wanted.long()).abs().max() > _STEPS.get(str(got.dtype), 0)) * 2
    truth = wanted.double()
    scale = truth.abs() + truth.square().mean().sqrt()
    allowed = _ROUNDINGS * (max(eps, torch.finfo(got.dtype).eps) + sqrt(length) * torch.finfo(torch.float32).eps)
    difference = (got.double() - truth).abs() / (allowed * scale + 1e-12)
    return float(difference.max()) if bool(torch.isfinite(difference).all()) else float("inf")


def _coarsest(inputs: Inputs) -> float:
    """Return the largest machine epsilon among the types of the inputs."""
    torch = require("torch")
    return max(torch.finfo(x.dtype).eps for x in inputs if getattr(x, "is_floating_point", bool)())


def _wide(value: Any) -> Any:
    return value.double() if getattr(value, "is_floating_point", bool)() else value


def _several(results: Any) -> tuple[Any, ...]:
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)
