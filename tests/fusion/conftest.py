"""Runs of a Llama of two layers, on which the plan of fused kernels is tested."""

import json
from importlib.util import find_spec

import pytest

from tracekit.analyzers.cost import hardware
from tracekit.analyzers.fuse import graph as graphs
from tracekit.run import GRAPH

H100 = hardware.find("h100")


@pytest.fixture(scope="session", autouse=True)
def _patched_once():
    """In a kernel, Triton's interpreter patches its language again for each call of a function, and lists all types
    again for each value: a quarter of its time."""
    if not find_spec("triton"):
        yield
        return
    from triton import language
    from triton.runtime import interpreter

    patch, done = interpreter._patch_lang, set()

    class Outermost(interpreter._LangPatchScope):
        def restore(self):
            done.clear()
            super().restore()

    def patched(function):
        wanted = {id(each) for each in function.__globals__.values() if each is language or each is language.core}
        scope = Outermost() if not done else interpreter._LangPatchScope()
        if not wanted <= done:
            scope._changes = patch(function)._changes
            done.update(wanted)
        return scope

    dtype_of, dtypes = interpreter._get_np_dtype, {}

    def known_dtype(kind):
        name = kind.scalar.name
        return dtypes[name] if name in dtypes else dtypes.setdefault(name, dtype_of(kind))

    with pytest.MonkeyPatch.context() as context:
        context.setattr(interpreter, "_patch_lang", patched)
        context.setattr(interpreter, "_get_np_dtype", known_dtype)
        yield


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    """Return the settings and the graph of the prefill of a Llama with two layers."""
    pytest.importorskip("torch")
    from tracekit.capture import complete as planned
    from tracekit.capture import graph_of, steps
    from tracekit.run import Settings

    folder = tmp_path_factory.mktemp("llama")
    sizes = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 2, "vocab_size": 64}
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_key_value_heads": 8, **sizes}
    (folder / "config.json").write_text(json.dumps(config))
    settings = planned(Settings(model=str(folder), device="model", gpu="h100", dtype="bf16", seq_len=64))
    return settings, graph_of(steps.run(settings, H100).recording)


@pytest.fixture(scope="session")
def run(llama, tmp_path_factory):
    """Return a run's folder with its graph and settings, without a trace."""
    folder = tmp_path_factory.mktemp("run")
    (folder / GRAPH).write_bytes(graphs.to_bytes(llama[1]))
    (folder / "run.json").write_text(json.dumps({"settings": llama[0].as_dict()}))
    return folder
