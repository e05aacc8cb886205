"""The options that all fits share."""

import argparse
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Asked:
    shared: Path
    write: bool


def arguments(description: str) -> Asked:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path(__file__).parents[3] / "shared")
    parser.add_argument("--dry-run", action="store_true", help="print, do not change the constants")
    asked = parser.parse_args()
    return Asked(asked.shared, not asked.dry_run)
