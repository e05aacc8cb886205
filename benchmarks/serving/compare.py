"""Print what was recorded of serving beside what serve-plan predicted.

python benchmarks/serving/compare.py OUT
"""

import argparse
import csv
import json
from pathlib import Path

_ENGINES = {"eager": "chunked-prefill", "graphs": "cuda-graphs+chunked-prefill"}
_TIMES = ("ttft_p50", "ttft_p99", "tbt_p50", "tbt_p99")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    recorded = json.loads((parser.parse_args().output / "summary.json").read_text())
    print(f"{recorded['device']}, torch {recorded['torch']}; plain passes: {recorded['runs'][0]}")
    for run in recorded["runs"][1:]:
        name = f"{run['rate']:g} requests/s, {run['mode']}"
        if "error" in run:
            print(f"{name}: {run['error']}")
            continue
        predicted = _predicted(run["rate"], _ENGINES[run["mode"]])
        print(f"{name}: {float(predicted['tokens_per_s']):.0f} tokens/s predicted, {run['tokens_per_s']:.0f} recorded")
        for time in _TIMES:
            print(
                f"  {time}: {1e3 * float(predicted[f'{time}_s']):.1f} ms predicted, {run[f'{time}_ms']:.1f} ms recorded"
            )


def _predicted(rate: float, engine: str) -> dict[str, str]:
    path = Path(__file__).with_name(f"predictions-{rate:g}.csv")
    with path.open(newline="") as file:
        return next(row for row in csv.DictReader(file) if row["engine"] == engine)


if __name__ == "__main__":
    main()
