"""Fits [convolution] of analyzers/cost/time/constants.toml on our own kernel times of an H200.

    python benchmarks/fit_convolution.py [--dry-run]

36 forward passes of ResNet-50's and ViT's layers, fp32 (in TF32) as they come, bf16 with channels last.
"""

from fitting.command import arguments
from fitting.section import fit_and_write
from measurements import own


def main() -> None:
    asked = arguments(__doc__)
    rows = [row for row in own.rows() if row.cost.family == "convolution"]
    fit_and_write("convolution", rows, lambda row: row.gpu.id, writes=asked.write)


if __name__ == "__main__":
    main()
