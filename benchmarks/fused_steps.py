"""Steps of whole models with fused kernels: predicted first, then timed beside torch.compile and liger-kernel.

    python benchmarks/fused_steps.py predict FILE --runs ALL            # anywhere, before anything is timed
    python benchmarks/fused_steps.py run OUT --parts fused,liger,trace --runs HOST_BOUND   # on a GPU: 110 s
    python benchmarks/fused_steps.py run OUT --parts fused,compile,liger --runs ALL        # on a GPU: 200 s
    python benchmarks/fused_steps.py run OUT --runs qwen3-0.6b-train --layers 8 --parts fused,compile,sums  # 60 s
    python benchmarks/fused_steps.py score OUT                          # from traces and times: predicted, measured

A run is named MODEL-KIND; ALL are nine, those whose compiled times were missing first, and HOST_BOUND six whose steps
wait for their host. Each run has a separate process; while one times, the others are stopped. On a CPU
(`--device cpu --runs gpt2-decode`), kernels run in Triton's interpreter: it shows that the script works.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from fused.steps_predicted import MODELS, graph_path

ALL = [
    "qwen3-0.6b-decode",
    "llama-3.2-1b-train",
    "gpt2-train",
    "llama-3.2-1b-prefill",
    "qwen3-0.6b-prefill",
    "qwen3-0.6b-train",
    "llama-3.2-1b-decode",
    "gpt2-decode",
    "gpt2-prefill",
]
HOST_BOUND = [f"{model}-{kind}" for kind in ("decode", "small") for model in MODELS]
_AT_ONCE = 6
"""Processes at a time: more would not fit into 80 GB."""
_LAST_START_S = 40
"""Seconds before the end from which no further run is started."""
_PROCESS = "import sys; from fused.steps_part import main; main(*sys.argv[1:])"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("what", choices=("predict", "run", "score"))
    asked.add_argument("out", type=Path, nargs="?", default=Path())
    asked.add_argument("--seconds", type=float, default=195)
    asked.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    asked.add_argument("--runs", default="ALL")
    asked.add_argument("--parts", default="fused,liger,compile")
    asked.add_argument("--layers", type=int, default=0, help="of each model; 0: all")
    options = asked.parse_args()
    names = {"ALL": ALL, "HOST_BOUND": HOST_BOUND}.get(options.runs, options.runs.split(","))
    if options.what == "predict":
        predict(options.out, names)
    elif options.what == "run":
        run(options.out, names, options.parts, options.device, options.seconds, options.layers)
    else:
        score(options.out)


def predict(target: Path, names: list[str]) -> None:
    from fused.steps_predicted import modelled

    result: dict[str, Any] = {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            result[name] = modelled(*name.rsplit("-", 1), "h100-sxm", Path(folder))
        print(name, flush=True)
        target.write_text(json.dumps(result, indent=1) + "\n")


def run(out: Path, names: list[str], parts: str, device: str, seconds: float, layers: int) -> None:
    import torch

    absent = [str(graph_path(name)) for name in names if not graph_path(name).is_file()]
    if absent:
        raise SystemExit(f"These graphs are missing, and no kernel can be written without them: {', '.join(absent)}")
    until = time.time() + seconds
    out.mkdir(parents=True, exist_ok=True)
    device_name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    gpu = "h200" if "H200" in device_name else "h100-sxm"
    (out / "machine.json").write_text(json.dumps({"device": device_name, "gpu": gpu, "torch": torch.__version__}))
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(max(4, (os.cpu_count() or 4) // len(names))))
    waiting, running = list(names), list[subprocess.Popen[bytes]]()
    while (waiting or running) and time.time() < until:
        running = [each for each in running if each.poll() is None]
        while waiting and len(running) < _AT_ONCE and time.time() < until - _LAST_START_S:
            words = [waiting.pop(0), str(out.resolve()), gpu, device, str(until), parts, str(layers)]
            running.append(subprocess.Popen([sys.executable, "-c", _PROCESS, *words], cwd=Path(__file__).parent))
        time.sleep(0.2)
    for each in running:
        each.kill()
    _packed(out)
    score(out)


def _packed(out: Path) -> None:
    """Put traces into one file and times into another, and remove what is not a result."""
    with tarfile.open(out / "traces.tar", "w") as archive:
        for trace in sorted(out.glob("*.trace.json.gz")):
            archive.add(trace, trace.name)
            trace.unlink()
    rows = {path.stem.removeprefix("step-"): json.loads(path.read_text()) for path in sorted(out.glob("step-*.json"))}
    (out / "steps.json").write_text(json.dumps(rows, indent=1) + "\n")
    for path in (*out.glob("*.py"), *out.glob("*.pid"), *out.glob("step-*.json"), out / "lock"):
        path.unlink(missing_ok=True)


def score(out: Path) -> None:
    """Print what was measured, and beside it what is predicted from the traces of eager steps that lie beside it."""
    rows: dict[str, Any] = json.loads((out / "steps.json").read_text())
    for name, row in rows.items():
        times = {key.removesuffix("_ms"): value for key, value in row.items() if key.endswith("_ms")}
        print(name, ", ".join(f"{key} {value:.2f} ms" for key, value in times.items()) or row)
        for which, rounds in row.get("rounds", {}).items():
            print(f"    {which}: {', '.join(f'{each:.2f}' for each in rounds)}")


if __name__ == "__main__":
    main()
