"""Times fused kernels on a GPU beside the ops that they replace and torch.compile's version of the same group.

    python benchmarks/fused_kernels.py OUT [--seconds 220] [--device cpu]

Reads predictions/fused_kernels.json, which was written before; writes OUT/kernels.json and the kernels'
files. A time of a kernel is its duration by CUPTI; inputs rotate through more memory than the cache holds.
On a CPU, kernels of tiny sizes run in Triton's interpreter, which only shows that the script works.
"""

import argparse
import json
import time
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("out", type=Path)
    asked.add_argument("--seconds", type=float, default=220)
    asked.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    asked.add_argument("--runs", default="", help="names of runs, with commas between")
    options = asked.parse_args()
    if options.device == "cpu":
        from tracekit.fuse.proof import interpret

        interpret()
    from fused import kernels_part

    options.out.mkdir(parents=True, exist_ok=True)
    predictions = json.loads((HERE / "predictions/fused_kernels.json").read_text())
    if options.runs:
        predictions = {name: run for name, run in predictions.items() if name in options.runs.split(",")}
    kernels_part.run(predictions, options.out, options.device, until=time.monotonic() + options.seconds)


if __name__ == "__main__":
    main()
