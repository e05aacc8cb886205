"""Compares predictions with all available measurements, and writes docs/accuracy.md.

    python benchmarks/accuracy.py [--shared DIRECTORY] [--page FILE]

DIRECTORY holds the public measurements (calibration/); by default the folder `shared` beside the checkout. Our own
stand in benchmarks/data. A chapter whose measurements are absent says so instead.
"""

import argparse
from pathlib import Path

from accuracy.page import assemble

_ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=_ROOT.parent / "shared")
    parser.add_argument("--page", type=Path, default=_ROOT / "docs" / "accuracy.md")
    arguments = parser.parse_args()
    arguments.page.write_text(assemble(arguments.shared), encoding="utf-8")
    print(f"Written: {arguments.page}")


if __name__ == "__main__":
    main()
