"""Steps of whole models with fused kernels: predicted first, then timed beside torch.compile and liger-kernel.

    python benchmarks/fused_steps.py predict                          # anywhere: writes predictions/fused_steps.json
    python benchmarks/fused_steps.py run OUT [--seconds 225]          # on a GPU
    python benchmarks/fused_steps.py score OUT                        # the tables of docs/results.md

`run` predicts each run once more, from a trace of its eager step, before any kernel of ours runs; each model has a
process of its own, and what is timed holds a lock. On a CPU (`--device cpu --models gpt2`), nothing is
predicted from the trace, and kernels run in Triton's interpreter: it shows that the script works.
"""

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from fused.steps_predicted import MODELS, WORKLOADS

TARGET = Path(__file__).parent / "predictions/fused_steps.json"
_PROCESS = "import sys; from fused.steps_part import main; main(*sys.argv[1:])"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("what", choices=("predict", "run", "score"))
    asked.add_argument("out", type=Path, nargs="?", default=Path())
    asked.add_argument("--seconds", type=float, default=225)
    asked.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    asked.add_argument("--models", default=",".join(MODELS))
    options = asked.parse_args()
    if options.what == "predict":
        predict()
    elif options.what == "run":
        run(options.out, options.models.split(","), options.device, options.seconds)
    else:
        score(options.out)


def predict() -> None:
    from fused.steps_predicted import modelled

    result: dict[str, Any] = {}
    for model in MODELS:
        for workload in WORKLOADS:
            with tempfile.TemporaryDirectory() as folder:
                result[f"{model}-{workload}"] = modelled(model, workload, "h100-sxm", Path(folder))
            print(f"{model}-{workload}", flush=True)
            TARGET.write_text(json.dumps(result, indent=1) + "\n")


def run(out: Path, models: list[str], device: str, seconds: float) -> None:
    import torch

    until = time.time() + seconds
    out.mkdir(parents=True, exist_ok=True)
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    gpu = "h200" if "H200" in name else "h100-sxm"
    (out / "machine.json").write_text(json.dumps({"device": name, "gpu": gpu, "torch": torch.__version__}) + "\n")
    arguments = [[model, str(out.resolve()), gpu, device, str(until)] for model in models]
    running = [
        subprocess.Popen([sys.executable, "-c", _PROCESS, *each], cwd=Path(__file__).parent) for each in arguments
    ]
    for each in running:
        try:
            each.wait(max(1.0, until + 5 - time.time()))
        except subprocess.TimeoutExpired:
            each.kill()
    with tarfile.open(out / "traces.tar", "w") as archive:
        for trace in sorted(out.glob("*.trace.json.gz")):
            archive.add(trace, trace.name)
            trace.unlink()
    for path in (*out.glob("*.py"), out / "lock"):
        path.unlink(missing_ok=True)
    score(out)


def score(out: Path) -> None:
    """Print what was predicted beside what was measured."""
    blind = json.loads(TARGET.read_text())
    rows = {
        name: row for path in sorted(out.glob("steps-*.json")) for name, row in json.loads(path.read_text()).items()
    }
    print(
        "| run | kernels saved: modelled | from the trace | measured | error | step saved: from the trace | measured |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, row in rows.items():
        if "fused_kernel_ms" in row and "from_trace" in row:
            print(_scored(name, blind[name], row))
    for name, row in rows.items():
        times = {key: value for key, value in row.items() if key.endswith("_ms")}
        print(name, ", ".join(f"{key} {value:.4g}" for key, value in times.items()) or row)


def _scored(name: str, blind: dict[str, Any], row: dict[str, Any]) -> str:
    before = row["from_trace"]
    saved = row["eager_kernel_ms"] - row["fused_kernel_ms"]
    modelled = blind["kernel_ms"] - blind["kernel_after_ms"]["expected"]
    traced = before["kernel_ms"] - before["kernel_after_ms"]["expected"]
    gain, low, high = (row["eager_ms"] * (1 - 1 / before["speedup"][key]) for key in ("expected", "low", "high"))
    measured = row["eager_ms"] - row["fused_ms"]
    return (
        f"| {name} | {modelled:.2f} ms | {traced:.2f} | {saved:.2f} | {traced / saved - 1:+.0%} | "
        f"{gain:.2f} ms ({low:.2f} to {high:.2f}) | {measured:.2f} |"
    )


if __name__ == "__main__":
    main()
