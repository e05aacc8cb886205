"""Compares the measured shares of layers with the shares predicted before.

python benchmarks/layer_shares/compare.py OUT/shares.csv     # exits with 1 where a share is more than 5 points off
"""

import argparse
import sys
from pathlib import Path

import pandas as pd

LIMIT = 0.05


def compared(measured: pd.DataFrame, predicted: pd.DataFrame) -> pd.DataFrame:
    """Return the layers of both, with the difference in points; a layer that one of them lacks has a share of 0."""
    both = predicted.merge(measured, on=["run", "layer"], how="outer", suffixes=("_predicted", "_measured"))
    both = both.fillna({"share_predicted": 0.0, "share_measured": 0.0})
    return both.assign(points=100 * (both["share_predicted"] - both["share_measured"]))


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Return for each run the largest difference, and where it is."""
    worst = rows.loc[rows["points"].abs().groupby(rows["run"]).idxmax()]
    return worst[["run", "layer", "share_predicted", "share_measured", "points"]].reset_index(drop=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path)
    parser.add_argument("--predicted", type=Path, default=Path(__file__).with_name("predictions.csv"))
    args = parser.parse_args()
    rows = compared(pd.read_csv(args.measured), pd.read_csv(args.predicted))
    print(rows[rows[["share_predicted", "share_measured"]].max(axis=1) > 0.01].to_string(index=False))
    print(summary(rows).to_string(index=False))
    sys.exit(int(rows["points"].abs().max() > 100 * LIMIT))


if __name__ == "__main__":
    main()
