"""Score the kernel model on scans, batch norms in training and recurrent layers of an H100.

    python benchmarks/sequences.py [-o OUT.csv]

benchmarks/data/h100_sequences.csv was recorded by `measure_kernels.py OUT.csv scans batch-norms recurrent`.
benchmarks/predictions/sequences.csv is what the model said before; -o writes what it says now.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import pandas as pd
from measurements import own

from tracekit.analyzers.cost import Cost, Recurrent, estimate_ns
from tracekit.analyzers.cost.hardware import find

BEFORE = Path(__file__).parent / "predictions" / "sequences.csv"
GPU = "h100"
_BESIDE = ("add_", "fill_", "copy_")
"""Ops that only serve the measured one."""


def modelled() -> pd.DataFrame:
    """Return the measured and modelled microseconds of each op call."""
    calls = [call for call in own.calls(own.SEQUENCES) if call[1] not in _BESIDE]
    timed = [(label, op, _as_run(cost), ns) for label, op, cost, ns in calls]
    return pd.DataFrame(
        [(label, op, cost.precision, ns / 1e3, estimate_ns(cost, find(GPU)) / 1e3) for label, op, cost, ns in timed],
        columns=["label", "op", "precision", "measured_us", "modelled_us"],
    ).round(3)


def _as_run(cost: Cost) -> Cost:
    """Return the cost in the precision of a modelled run: cuDNN's recurrent layers in fp32 use TF32."""
    recurrent = isinstance(cost.work, Recurrent) and cost.precision == "fp32"
    return replace(cost, precision="tf32") if recurrent else cost


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Return for each kind of op how the modelled times relate to the measured ones."""
    ratio = (rows["modelled_us"] / rows["measured_us"]).groupby([rows["label"], rows["op"]], sort=False)
    return ratio.agg(["size", "median", "min", "max"]).reset_index()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    rows = modelled()
    if args.output:
        rows.to_csv(args.output, index=False)
    print(summary(rows).to_string(index=False))


if __name__ == "__main__":
    main()
