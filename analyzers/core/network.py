"""The hosts of a job, and the network between them."""

from typing import Literal

Link = Literal["nvlink", "ib"]
"""The network of a job: one host, or hosts of eight GPUs with one InfiniBand adapter per GPU."""

GPUS_OF_A_HOST = 8
"""Largest number of ranks on one host. A larger group spans hosts with an unknown network."""
