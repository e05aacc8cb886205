"""A mutated execution trace is read, or refused with advice, and never takes long."""

import json
import random
import time
from functools import cache

import pytest

from tests.analyzers.test_execution_trace import SAMPLES, chakra, tensor
from tracekit.analyzers.errors import InputError
from tracekit.analyzers.fusion.execution_graph import graph_of
from tracekit.analyzers.fusion.groups import find
from tracekit.analyzers.fusion.patterns import kernels
from tracekit.analyzers.readers import execution_trace

from . import mutators
from .check import LONGEST_S

BYTES = (
    mutators.flip_bits,
    mutators.replace_pieces,
    mutators.cut_off,
    mutators.lose_or_repeat,
    mutators.odd_number,
    mutators.odd_string,
)


@cache
def base() -> bytes:
    names = ["pow", "mean", "add", "rsqrt", "mul", "mul", "silu", "view", "mm", "add", "empty", "exp"]
    nodes = [chakra(10 + i, f"aten::{name}", [tensor(i, i)], [tensor(i + 1, i + 1)]) for i, name in enumerate(names)]
    return json.dumps({"schema": "1.1.1", "nodes": nodes}).encode()


def values(chance: random.Random, data: bytes) -> bytes:
    """Drop keys of nodes, and give values other types; the JSON stays valid."""
    document = json.loads(data)
    for _ in range(chance.choice([1, 3, 20])):
        target = chance.choice(document["nodes"])
        while isinstance(target, (dict, list)) and target:
            key = chance.choice(list(target)) if isinstance(target, dict) else chance.randrange(len(target))
            if chance.random() < 0.4:
                target[key] = chance.choice(mutators.ODD_VALUES)
                break
            target = target[key]
    return json.dumps(document).encode()


def parents(chance: random.Random, data: bytes) -> bytes:
    """Let nodes be inside each other, and have the same id."""
    document = json.loads(data)
    ids = [node["id"] for node in document["nodes"]]
    for node in document["nodes"]:
        node["ctrl_deps"] = chance.choice([*ids, 2, node["ctrl_deps"]])
        node["id"] = chance.choice([node["id"], node["id"], chance.choice(ids)])
    return json.dumps(document).encode()


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_mutated_execution_traces(tmp_path, first):
    path = tmp_path / "et.json"
    for seed in range(first, first + 100):
        chance = random.Random(seed)
        path.write_bytes(chance.choice([*BYTES, values, parents])(chance, base()))
        start = time.process_time()
        try:
            kernels(find(graph_of(execution_trace.read(path)).graph))
        except InputError as error:
            assert error.hint, f"seed {seed}"
        assert time.process_time() - start < LONGEST_S, f"seed {seed}"


def test_the_sample_survives_too():
    assert len(execution_trace.read(SAMPLES / "cpu_llama_prefill.et.json.gz")) > 100
