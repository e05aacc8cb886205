"""Times each written kernel, its unfused ops and torch.compile's version of them."""

import json
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from fused.device_time import copy_rate, kernel_us, sets_for, wall_us
from tracekit.fuse import proof
from tracekit.fuse.catalogue import TEMPLATES
from tracekit.fuse.writing import Written, load, text

_PROOF_S = 20
"""Seconds for proofs, after the timing."""
_SMALL = 2048
"""Number of outputs below which GEMMs are left out, because a launch takes longer than reading their weights."""
_TUNED_FROM = 4e6
"""Bytes from which all launch configurations are tried. Below, all take as long as a launch."""


def run(predictions: dict, out: Path, device: str, until: float) -> None:
    gpu = "h200" if device == "cuda" and "H200" in torch.cuda.get_device_name() else "h100-sxm"
    result: dict[str, Any] = {"gpu": gpu, "device": _name(device), "torch": torch.__version__, "rows": [], "proofs": {}}
    result["copy_bytes_per_s"] = rate = copy_rate(device)
    for name, entry in _ordered(predictions, gpu):
        left = until - time.monotonic()
        if left < 0:
            result["rows"].append({"run": name, "template": entry["template"], "skipped": "no time was left"})
            continue
        try:
            row = _timed(name, entry, out, device, rate, compiled=left > 25)
        except Exception as error:
            row = {"run": name, "template": entry["template"], "sizes": entry["sizes"], "error": repr(error)[:400]}
            traceback.print_exc(limit=-2)
        result["rows"].append(row)
        print(_line(row), flush=True)
        (out / "kernels.json").write_text(json.dumps(result, indent=1) + "\n")
    for template in dict.fromkeys(row["template"] for row in result["rows"]):
        if time.monotonic() < until + _PROOF_S:
            result["proofs"][template] = _proved(template, device)
            (out / "kernels.json").write_text(json.dumps(result, indent=1) + "\n")


def _proved(template: str, device: str) -> dict:
    """Prove a template on this device, with its gradients, in bf16."""
    kernel = import_module(f"tracekit.fuse.kernels.{template}")
    checks = proof.prove(kernel, template, (torch.bfloat16,), trains=True, device=device)
    failed = [f"{each.name}: {each.error:.2g} {each.detail}" for each in proof.failed(checks)]
    print(f"{template:20s} {len(checks)} checks, failed: {failed or 'none'}", flush=True)
    return {"checks": len(checks), "failed": failed}


def _name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else "CPU"


def _ordered(predictions: dict, gpu: str) -> list[tuple[str, dict]]:
    """Order the kernels: large ones alone first, then those of prefill, training and decoding."""
    entries = [
        ("alone", {**each, "launches": each["launches"][gpu], "after_ns": each["after_ns"][gpu]})
        for each in predictions.get("alone", ())
        if min(each["sizes"].get("columns", 0), each["sizes"].get("inputs", 8192)) != _SMALL
    ]
    for kind in ("prefill", "train", "decode"):
        for name, run_ in predictions.items():
            if name.endswith(kind):
                entries += [(name, each) for each in run_["kernels"][gpu] if each["template"]]
    return entries


def _timed(name: str, entry: dict, out: Path, device: str, rate: float, *, compiled: bool) -> dict:
    template, trains = entry["template"], name.endswith("train")
    path = out / f"{name}-{template}-{abs(hash(str(entry['sizes']))) % 10**6}.py"
    constants = entry.get("constants", {})
    path.write_text(text(Written(template, _tuples(constants), entry["launches"])))
    kernel = load(path, path.stem.replace("-", "_").replace(".", "_"))
    pair = _pair(kernel, template, entry["sizes"], trains, device)
    sets = pair["sets"]
    compared = pair.get("compare") or (pair["fused"], pair["check"])
    error = _difference(*(function(*pair["fresh"]()) for function in compared))
    best, tried = _tuned(kernel, pair, entry, device)
    after, after_launches = kernel_us(pair["fused"], sets, device)
    before, before_launches = kernel_us(pair["unfused"], sets, device)
    inductor = (None, None)
    if compiled and device == "cuda":
        torch.compiler.reset()
        inductor = kernel_us(torch.compile(pair["unfused"], dynamic=False), sets, device)
    library = {key: kernel_us(function, sets, device)[0] for key, function in pair.get("library", {}).items()}
    moved = entry["bytes_after"]
    return {
        "run": name, "template": template, "pattern": entry.get("pattern", TEMPLATES[template].pattern),
        "sizes": entry["sizes"], "groups": entry.get("groups", 1), "bytes": moved,
        "predicted_before_us": entry.get("before_ns", 0) / 1e3,
        "predicted_after_us": [n / 1e3 for n in entry["after_ns"]],
        "before_us": before, "after_us": after, "compiled_us": inductor[0], "library_us": library,
        "launches": [before_launches, after_launches, inductor[1]], "host_us": _host_us(pair, device),
        "of_copy": moved / after / rate * 1e6, "bytes_per_s": moved / after * 1e6,
        "launch": best, "tried": tried, "difference": error,
    }  # fmt: skip


def _host_us(pair: dict, device: str) -> list[float]:
    """Return the wall time of a call with small inputs, which is host time if the device takes less."""
    return [] if device == "cpu" else [wall_us(pair[which], pair["sets"][:1], 50) for which in ("unfused", "fused")]


def _tuples(constants: dict) -> dict:
    """Convert the lists of JSON to tuples."""
    return {key: tuple(map(_tuple, value)) if isinstance(value, list) else value for key, value in constants.items()}


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _tuned(kernel: Any, pair: dict, entry: dict, device: str) -> tuple[dict | None, list]:
    """Keep the fastest launch configuration."""
    if device == "cpu" or entry["bytes_after"] < _TUNED_FROM or len(getattr(kernel, "CONFIGS", ())) < 2:
        return getattr(kernel, "CONFIG", None), []
    tried = []
    for launch in kernel.CONFIGS:
        kernel.CONFIG = launch
        try:
            tried.append((min(wall_us(pair["fused"], pair["sets"], 12) for _ in range(2)), launch))
        except Exception as error:  # a launch may need more registers or shared memory than there are
            print("   ", launch, repr(error)[:120])
    kernel.CONFIG = min(tried, key=lambda each: each[0])[1]
    return kernel.CONFIG, [[round(us, 2), launch] for us, launch in tried]


def _pair(kernel: Any, template: str, sizes: dict, trains: bool, device: str) -> dict:
    """Return the kernel and what it replaces as functions of the same inputs, and sets of inputs."""
    sizes = {key: tuple(value) if isinstance(value, list) else value for key, value in sizes.items()}
    if device == "cpu":
        sizes |= {key: 3 for key in ("rows",) if key in sizes}
        sizes |= {key: 64 for key in ("vocabulary",) if key in sizes}
        sizes |= {
            key: min(value, 256) for key, value in sizes.items() if key in ("columns", "inputs", "keys", "outputs")
        }
    dtype = torch.bfloat16 if device == "cuda" else torch.float32

    def fresh() -> tuple:
        inputs = list(kernel.example(dtype, device, **sizes))
        if template == "dropout_residual":
            inputs[2] = None
        return tuple(inputs)

    if template == "cross_entropy":
        return _losses(kernel, sizes, trains, dtype, device)
    first = fresh()
    sets = [first] + [fresh() for _ in range(sets_for(_bytes(first), device) - 1)]
    fused, reference = kernel.fused, kernel.reference
    pair = {"sets": sets, "fresh": lambda: first, "fused": fused, "check": reference}
    pair["unfused"] = getattr(kernel, "unfused", reference)
    if template == "weight_only_product":
        pair |= _weights(sizes, dtype, device)
    if trains and TEMPLATES[template].gradients:
        places = [i for i in TEMPLATES[template].gradients if i < len(first) and first[i] is not None]
        for which in ("fused", "unfused", "check"):
            pair[which] = _with_backward(pair[which], places)
    return pair


def _with_backward(function: Callable, places: list[int]) -> Callable:
    def both(*inputs: Any) -> Any:
        changed = [each.detach().requires_grad_() if i in places else each for i, each in enumerate(inputs)]
        outputs = function(*changed)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        with torch.no_grad():
            given = [each.detach() for each in outputs]  # as good a gradient as any, and no launch
        return torch.autograd.grad(outputs, [changed[i] for i in places], given)

    return both


def _losses(kernel: Any, sizes: dict, trains: bool, dtype: Any, device: str) -> dict:
    """Return functions for the loss of given logits, with the gradient if the run trains."""
    rows, vocabulary = sizes["rows"], sizes["vocabulary"]
    logits = torch.randn(rows, vocabulary, device=device, dtype=dtype)
    labels = torch.randint(vocabulary, (rows,), device=device)
    count = torch.tensor(rows, device=device)

    def unfused(logits: Any, labels: Any) -> Any:
        logits = logits.detach().requires_grad_(trains)
        loss = torch.nn.functional.cross_entropy(logits.float(), labels)
        return (loss.detach(), *torch.autograd.grad(loss, [logits])) if trains else loss

    def fused(logits: Any, labels: Any) -> Any:
        losses = kernel.rows_to_loss(logits, labels, count, trains, vocabulary)
        return (losses, logits) if trains else losses

    def compared(logits: Any, labels: Any) -> Any:
        kept = logits.clone()
        losses = kernel.rows_to_loss(kept, labels, count, trains, vocabulary)
        return (losses.mean(), kept) if trains else losses.mean()

    inputs = (logits, labels)
    return {
        "sets": [inputs],
        "fresh": lambda: inputs,
        "fused": fused,
        "unfused": unfused,
        "compare": (compared, unfused),
    }


def _weights(sizes: dict, dtype: Any, device: str) -> dict:
    """Return GEMMs with 16-bit weights, and PyTorch's own with 4-bit weights, of the same shape."""
    bits, columns, inputs = sizes.get("bits", 4), sizes["columns"], sizes["inputs"]
    count = sets_for(2 * columns * inputs, device)
    wide = [torch.randn(columns, inputs, device=device, dtype=dtype) * inputs**-0.5 for _ in range(count)]
    turn = iter(range(10**9))
    library = {"16 bits": lambda x, *_: torch.nn.functional.linear(x, wide[next(turn) % count])}
    if bits == 4 and device == "cuda":
        packed = torch.randint(0, 255, (columns, inputs // 2), dtype=torch.uint8, device=device)
        scales = torch.ones(inputs // 64, columns, 2, dtype=dtype, device=device)
        tiles = [torch.ops.aten._convert_weight_to_int4pack(packed, 8) for _ in range(sets_for(packed.nbytes, device))]
        library["PyTorch's int4"] = lambda x, *_: torch.ops.aten._weight_int4pack_mm(
            x, tiles[next(turn) % len(tiles)], 64, scales
        )
    return {"library": library}


def _bytes(inputs: tuple) -> int:
    return sum(each.nbytes for each in inputs if isinstance(each, torch.Tensor))


def _difference(got: Any, wanted: Any) -> float:
    """Return the norm of the difference over that of the reference, of the worst result."""
    got, wanted = (each if isinstance(each, tuple) else (each,) for each in (got, wanted))
    pairs = [(a.double(), b.double()) for a, b in zip(got, wanted, strict=True)]
    return max(float((a - b).norm() / b.norm().clamp(min=1e-12)) for a, b in pairs)


def _line(row: dict) -> str:
    if "after_us" not in row:
        return f"{row['run']:22s} {row['template']:20s} {row.get('error', row.get('skipped', ''))[:90]}"
    compiled = f"{row['compiled_us']:9.1f}" if row["compiled_us"] else "        -"
    return (
        f"{row['run']:22s} {row['template']:20s} ops {row['before_us']:9.1f} compile {compiled} "
        f"ours {row['after_us']:9.1f} predicted {row['predicted_after_us'][1]:9.1f} us, {row['of_copy']:5.0%} of copy, "
        f"error {row['difference']:.1e}"
    )
