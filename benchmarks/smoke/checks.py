"""The checks: each is one use of tracekit that touches the device, in the order in which they matter."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.smoke import numbers
from benchmarks.smoke.numbers import Ended

_CODE = Path(__file__).parent / "code"
_RUN = ("trace.json.gz", "report.html", "analysis.json", "run.json")
_MEASURED = (*_RUN, "graph.json.gz")
_LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 256,
}
_STREAM = ("--requests", "closed:4,128,32")


FOLDERS = frozenset(
    (
        *("prefill-bf16", "prefill-fp32", "decode-bf16", "generate-fp16", "train-fp32", "modelled", "script"),
        *("own-profile", "own-train", "own-capture", "own-verify", "own-quantize", "snapshot", "bench", "grid"),
    )
)
"""Where the checks put their runs."""


@dataclass(frozen=True)
class Check:
    """A command, what it must leave in its folder, and the numbers that it must give."""

    name: str
    command: tuple[str, ...]
    folder: str = "."
    files: tuple[str, ...] = ()
    judge: Callable[[Ended], None] = numbers.written
    needs: tuple[str, ...] = ()
    """Packages without which it is skipped."""
    on_gpu: bool = False
    """Whether it is skipped without a GPU."""
    seconds: float = 150.0
    """Its time limit."""
    statuses: tuple[int, ...] = (0,)
    alone: bool = False
    """Whether nothing runs beside it, because advice from its times is measured later."""

    @property
    def folders(self) -> frozenset[str]:
        """The first parts of the paths that it reads or writes."""
        words = {word.partition("/")[0] for word in self.command[1:] if not word.startswith(("-", "/"))}
        return frozenset({*words, self.folder} & FOLDERS)


def checks(out: Path, gpu: bool) -> list[Check]:
    """Return the checks of a machine with a GPU, or of one without, whose model is tiny."""
    model = "gpt2" if gpu else _tiny_model(out)
    place = "cuda" if gpu else "cpu"
    kept = _MEASURED if gpu else _RUN
    steps = ("--steps", "2")

    def profiled(name: str, workload: str, *options: str, device: str = place, alone: bool = False) -> Check:
        command = ("profile", "--model", model, "--device", device, "--workload", workload, *steps, *options)
        return Check(
            f"profile {name}", _tracekit(*command, "-o", name, "--force"), name, kept, numbers.run, alone=alone
        )

    def own(function: str, folder: str, *files: str, **options: object) -> Check:
        command = (sys.executable, str(_CODE / "own.py"), function, place, folder)
        return Check(f"own module: {function}", command, folder, files, **options)

    def verified(run: str, *options: str, **limits: object) -> Check:
        command = _tracekit("verify", run, *options, "--max-seconds", "5")
        files = ("verify.json", "report.html")
        return Check(f"verify {run} {' '.join(options)}", command, run, files, numbers.verified, **limits)

    long = ("--seq-len", "256", "--batch-size", "16") if gpu else ("--seq-len", "16")
    short = ("--seq-len", "128" if gpu else "16")
    return [
        profiled("prefill-fp32", "prefill", "--dtype", "fp32", *long, alone=True),
        profiled("prefill-bf16", "prefill", "--dtype", "bf16", *short),
        profiled("decode-bf16", "decode", "--dtype", "bf16", *short),
        profiled("generate-fp16", "generate", "--dtype", "fp16", "--new-tokens", "4", *short),
        profiled("train-fp32", "train", "--dtype", "fp32", "--batch-size", "2", *short),
        own("profile", "own-profile", *kept, judge=numbers.run),
        own("train", "own-train", *kept, judge=numbers.run),
        own("capture", "own-capture", "trace.json.gz"),
        Check(
            "analyze what was captured",
            _tracekit("analyze", "own-capture", "--format", "json"),
            judge=numbers.printed_analysis,
        ),
        Check(
            "run a script",
            _tracekit("run", "-o", "script", "--force", str(_CODE / "plain.py"), place),
            "script",
            _RUN,
            numbers.run,
        ),
        Check("fuse: the plan", _tracekit("fuse", "prefill-bf16"), on_gpu=True),
        Check(
            "fuse --all",
            _tracekit("fuse", "prefill-bf16", "--all"),
            "prefill-bf16",
            ("kernels.json", "kernels"),
            numbers.kernels,
            needs=("triton",),
            on_gpu=True,
            alone=True,
        ),
        verified("prefill-bf16", "--apply", "fused:all", needs=("triton",), on_gpu=True),
        verified("prefill-fp32", *(("--top", "1") if gpu else ("--apply", "half-precision"))),
        verified("decode-bf16", "--apply", "cuda-graphs", on_gpu=True),
        verified("train-fp32", "--apply", "fused-optimizer,training-graph", on_gpu=True),
        own("verify", "own-verify", judge=numbers.gains),
        Check(
            "bench",
            _tracekit(
                *("bench", "--model", model, "--device", place, "--dtype", "fp32,bf16", "--apply", "none", *short),
                *("--max-seconds", "5", "-o", "bench", "--force"),
            ),
            "bench",
            ("bench.csv", "bench.html"),
            numbers.rows,
        ),
        Check(
            "bench --measure",
            _tracekit(
                *("bench", "--model", model, "--measure", "--device", place, "--batch-size", "1,2"),
                *("--dtype", "fp32", "--apply", "none,half-precision", *short, *(() if gpu else ("--gpu", "t4"))),
                *("--max-seconds", "20", "-o", "grid", "--force"),
            ),
            "grid",
            ("grid.csv", "grid.html"),
            numbers.rows,
        ),
        Check(
            "calibrate",
            _tracekit("calibrate", "-o", "calibration/calibration.json"),
            "calibration",
            ("calibration.json",),
            numbers.calibrated,
        ),
        Check("save a baseline", _tracekit("check", "decode-bf16", "--save", "main", "--force")),
        Check("check and record", _tracekit("check", "decode-bf16", "--against", "main", "--record"), statuses=(0, 3)),
        Check(
            "check counters", _tracekit("check", "generate-fp16", "--against", "generate-fp16", "--only", "counters")
        ),
        Check(
            "check in turn",
            _tracekit("check", "decode-bf16", "--against", "decode-bf16", "--in-turn", "5"),
            statuses=(0, 3),
        ),
        Check(
            "compare",
            _tracekit("compare", "prefill-fp32", "prefill-bf16", "--format", "json"),
            judge=numbers.compared,
        ),
        Check(
            "predict",
            _tracekit("predict", "decode-bf16", "--apply", "cuda-graphs", "--format", "json"),
            judge=numbers.predicted,
            on_gpu=True,
        ),
        own("snapshot", "snapshot", "snapshot.pickle", on_gpu=True),
        Check(
            "memory of a snapshot",
            _tracekit("memory", "snapshot/snapshot.pickle", "--format", "json"),
            judge=numbers.memory,
            on_gpu=True,
        ),
        profiled("modelled", "prefill", "--gpu", "h100", *short, device="model"),
        Check("memory of a run", _tracekit("memory", "modelled", "--format", "json"), judge=numbers.memory),
        Check("open", _tracekit("open", "decode-bf16", "--no-browser")),
        own("quantize", "own-quantize", judge=numbers.quantized, needs=("triton",), on_gpu=True),
        Check(
            "quantize",
            _tracekit("quantize", "--model", model, "--weights", "random", "--to", "int8", "-o", "int8.safetensors"),
            files=("int8.safetensors",),
        ),
        Check("serve-plan", _tracekit("serve-plan", "--model", "llama-3.1-8b", "--gpu", "h100", *_STREAM)),
    ]


def _tracekit(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "tracekit", *arguments)


def _tiny_model(out: Path) -> str:
    folder = out / "tiny"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_LLAMA), encoding="utf-8")
    return str(folder)
