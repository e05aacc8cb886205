"""The code in a recommendation parses."""

import ast

import pytest
from msgspec.structs import replace
from op_lists import base

from tracekit.advise import OPTIMIZATIONS, find

COMMANDS = ("tracekit ", "vllm ")
ARGUMENTS = ("sdpa:flash", "sdpa:flash-attention-2", "fp8-dynamic:per-tensor", "half-precision:fp16")


@pytest.mark.parametrize("name", [*(each.id for each in OPTIMIZATIONS), *ARGUMENTS])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_how_to_is_python_or_a_command(name, precision):
    run = base(precision=precision, batch_size=2, model="gpt2")
    run = replace(run, ops=run.ops.assign(phase="decode"))
    code = find(name).how_to(run)
    if not code.startswith(COMMANDS):
        ast.parse(code)
