"""How the GPUs of a job are connected: inside a host, and between hosts."""

from typing import Literal

Link = Literal["nvlink", "ib"]
"""One host, or hosts of eight GPUs with an InfiniBand adapter a GPU."""

GPUS_OF_A_HOST = 8
"""Largest number of ranks on one host. A larger group spans hosts, whose network is unknown."""
