"""An interpolated Kneser-Ney model of tokens, to be compared with."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Order:
    """Sequences of n tokens, each as one sorted integer, and what follows their first n - 1."""

    codes: Integers
    counts: Integers
    contexts: Integers
    sums: Integers
    followers: Integers
    discount: float


def ngram_loss(train: Integers, held_out: Integers, vocabulary: int, n: int = 5) -> float:
    """Return the mean negative log likelihood of the held-out tokens, in nats (R. Kneser, H. Ney, 1995)."""
    if vocabulary**n >= 2**63:
        raise ValueError("Sequences of n tokens do not fit into 64 bits.")
    codes, counts = np.unique(_codes(train, n, vocabulary), return_counts=True)
    wanted, orders = _codes(held_out, n, vocabulary), []
    for length in range(n, 0, -1):
        orders.append(_order(codes, counts, vocabulary))
        codes, counts = np.unique(codes % vocabulary ** (length - 1), return_counts=True)
    likelihood = np.full(len(wanted), 1 / vocabulary)
    for length, order in enumerate(reversed(orders), start=1):
        likelihood = _interpolated(order, wanted % vocabulary**length, likelihood, vocabulary)
    return float(-np.log(likelihood).mean())


def _codes(tokens: Integers, n: int, vocabulary: int) -> Integers:
    size = len(tokens) - n + 1
    return sum(tokens[at : at + size].astype(np.int64) * vocabulary ** (n - 1 - at) for at in range(n))  # type: ignore[return-value]


def _order(codes: Integers, counts: Integers, vocabulary: int) -> _Order:
    contexts, starts, followers = np.unique(codes // vocabulary, return_index=True, return_counts=True)
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    discount = once / max(once + 2 * twice, 1)
    return _Order(codes, counts, contexts, np.add.reduceat(counts, starts), followers, min(max(discount, 0.1), 0.9))


def _interpolated(order: _Order, wanted: Integers, shorter: Floats, vocabulary: int) -> Floats:
    count = _looked_up(order.codes, order.counts, wanted)
    total = _looked_up(order.contexts, order.sums, wanted // vocabulary)
    followers = _looked_up(order.contexts, order.followers, wanted // vocabulary)
    known = np.maximum(total, 1)
    mixed = np.maximum(count - order.discount, 0) / known + order.discount * followers / known * shorter
    return np.where(total > 0, mixed, shorter)


def _looked_up(keys: Integers, values: Integers, wanted: Integers) -> Integers:
    """Return the value of each wanted key, 0 if it is none of the sorted keys."""
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], 0)
