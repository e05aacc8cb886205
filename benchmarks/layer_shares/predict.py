"""Model every run for a GPU, and write the shares of its layers.

python benchmarks/layer_shares/predict.py h100 -o benchmarks/layer_shares/predictions.csv
"""

import argparse
import tempfile
from pathlib import Path

import pandas as pd
from shares import shares
from subjects import SETS, subjects

import tracekit

STEPS = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gpu")
    parser.add_argument("-o", "--output", type=Path, default=Path("predictions.csv"))
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--set", choices=SETS, default="first", help="which models (default: %(default)s)")
    args = parser.parse_args()
    tables = []
    for name, subject in subjects(args.set, args.tiny).items():
        model, inputs = subject.build()
        options = {"train": subject.train, "loss": subject.loss, "steps": STEPS, "device": "model"}
        with tempfile.TemporaryDirectory() as folder:
            analysis = tracekit.profile(model, inputs, gpu=args.gpu, output=f"{folder}/run", **options)
        tables.append(shares(name, analysis, STEPS))
        print(name, f"{tables[-1]['busy_us'].iloc[0]:,.0f} µs a step below the model")
    pd.concat(tables).to_csv(args.output, index=False)


if __name__ == "__main__":
    main()
