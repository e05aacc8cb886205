"""Finds the numbers of a model that is served: bundled, or in a folder with a config.json."""

import json
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tracekit.analyzers.attribute import analyze
from tracekit.analyzers.core import InputError, MissingPackageError, UnknownNameError, reading
from tracekit.analyzers.cost import GPU, hardware
from tracekit.analyzers.serving import (
    Model,
    Question,
    RecordedPass,
    ServePlan,
    bundled_models,
    model_of,
    planned,
    recorded_passes,
)
from tracekit.analyzers.trace import load
from tracekit.capture import bundled, load_config

_FORMATS = ("-nvfp4", "-fp8", "-fp4", "-awq", "-gptq-int4", "-int4", "-mxfp4", "-instruct", "-it", "-hf", "-chat")
"""Ends of names that do not change the architecture."""
_STATED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "max_position_embeddings")
_LARGEST = 4 << 20
_HINT = "Give a folder with a config.json, as save_pretrained writes it."


def serve_plan(question: Question) -> ServePlan:
    """Return the answer. Raises TracekitError for an unknown name, requests that cannot be served, or a model that does
    not fit."""
    gpu, model = hardware.find(question.gpu), served_model(question.model)
    return planned(question, model, gpu, _recorded(question.trace, gpu) if question.trace else ())


def _recorded(path: str, gpu: GPU) -> list[RecordedPass]:
    trace = load(path)
    analysis = analyze(trace, gpu)
    if analysis.source.trains:
        raise InputError(f"{path} is no trace of an engine.", "It trains.", "Give a trace of passes of the engine.")
    return recorded_passes(trace.host, analysis.work, analysis.gaps)


def served_model(name: str) -> Model:
    """Return the model of a name or folder. Raises InputError for a config that is not one of a decoder, and
    UnknownNameError with the nearest names."""
    if Path(name).is_dir():
        return model_of(_config(Path(name) / "config.json"), Path(name).resolve().name)
    known = _known()
    for candidate in _spellings(name):
        if candidate in known:
            shown, values = known[candidate]
            return model_of(_complete(shown, values), shown)
    near = get_close_matches(_spellings(name)[-1], known, n=3, cutoff=0.5)
    hint = f"Nearest: {', '.join(near)}. " if near else ""
    raise UnknownNameError(
        f"No model is called {name!r}.", "It is not bundled, and there is no such folder.", hint + _HINT
    )


def _known() -> dict[str, tuple[str, dict[str, Any]]]:
    found = {name: (values["name"], values) for name, values in bundled_models().items()}
    for spec in bundled():
        if spec.hyper_parameters:
            found |= {name: (spec.name, spec.hyper_parameters) for name in spec.names if name not in found}
    return found | {name.split("/")[-1]: value for name, value in found.items() if name.split("/")[-1] not in found}


def _complete(name: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of a bundled model with those that its class in transformers sets, if it lacks some and
    transformers is installed."""
    if all(number in values for number in _STATED):
        return values
    spec = next((each for each in bundled() if each.name == name), None)
    try:
        config = load_config(spec) if spec else None
    except MissingPackageError:
        return values
    return dict(config.to_dict()) if config is not None and hasattr(config, "to_dict") else values


def _spellings(name: str) -> list[str]:
    """Return the name, the name without its organisation, and both without formats at their ends."""
    spelled = [name.lower(), name.lower().split("/")[-1]]
    for each in spelled:
        shorter = next((each.removesuffix(end) for end in _FORMATS if each.endswith(end)), "")
        if shorter and shorter not in spelled:
            spelled.append(shorter)
    return spelled


def _config(path: Path) -> dict[str, Any]:
    with reading(f"{path} cannot be read.", _HINT):
        if path.stat().st_size > _LARGEST:
            raise InputError(f"{path} is no config of a model.", "It is too large.", _HINT)
        text = path.read_bytes()
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON.", f"{type(error).__name__}.", _HINT) from error
    if not isinstance(values, dict):
        raise InputError(f"{path} is no config of a model.", "It is not an object.", _HINT)
    return values
