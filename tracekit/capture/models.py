"""Finds and builds models: bundled architectures, a directory with a config.json, or a hub name, with random or real
weights."""

import json
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tracekit.analyzers.core import InputError, TracekitError, UnknownNameError
from tracekit.capture import model_kinds
from tracekit.capture.model_kinds import model_class
from tracekit.capture.narrow_weights import load_plain, narrow_file_in
from tracekit.capture.precision import torch_dtype
from tracekit.capture.workloads import WORKLOADS
from tracekit.run import Attention, Dtype, Settings, Weights, first_line, require

if TYPE_CHECKING:
    from torch import nn


_HUB_SECONDS = 5
_A_MODEL = "Give the directory that save_pretrained wrote."
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


@dataclass(frozen=True)
class ModelSpec:
    """The description of a model that is not built yet."""

    name: str
    origin: Literal["bundled", "directory", "hub"]
    location: str
    """Source of weights and configuration: a hub name or a directory."""
    aliases: tuple[str, ...] = ()
    source: str = ""
    training_class: str = ""
    """The transformers class for training, if the declared one has no loss."""
    parameters: int = 0
    """Number of parameters that its publishers state; 0 if it is not recorded."""
    hyper_parameters: dict[str, Any] | None = None
    """The bundled configuration; None if it is read from `location`."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases, self.location.lower())


@cache
def bundled() -> tuple[ModelSpec, ...]:
    """Return every bundled architecture, by name."""
    folder = resources.files("tracekit.capture") / "architectures"
    files = [entry for entry in folder.iterdir() if entry.name.endswith(".json")]
    return tuple(_bundled_spec(json.loads(entry.read_text())) for entry in sorted(files, key=lambda entry: entry.name))


def _bundled_spec(description: dict[str, Any]) -> ModelSpec:
    return ModelSpec(
        name=description["name"],
        origin="bundled",
        location=description["hub"],
        aliases=tuple(description["aliases"]),
        source=description["source"],
        parameters=description.get("parameters", 0),
        training_class=description.get("training_class", ""),
        hyper_parameters=description["config"],
    )


def find(name: str) -> ModelSpec:
    """Return the model of this name.

    Raises UnknownNameError if it is neither bundled, nor a directory, nor of the form of a hub name; InputError for a
    directory without a config.json.
    """
    for spec in bundled():
        if name.lower() in spec.names:
            return spec
    if Path(name).is_dir():
        return _directory(Path(name))
    if name.count("/") == 1 and not name.startswith((".", "/")) and not name.endswith("/"):
        return ModelSpec(name, "hub", name)
    raise _unknown(name, "It is not bundled, and there is no such directory.")


def _directory(path: Path) -> ModelSpec:
    if not (path / "config.json").is_file():
        raise InputError(f"{path} contains no model.", "It has no config.json.", _A_MODEL)
    return ModelSpec(path.resolve().name, "directory", str(path))


def _unknown(name: str, why: str) -> UnknownNameError:
    known = {known: spec.name for spec in bundled() for known in spec.names}
    near = list(dict.fromkeys(known[match] for match in get_close_matches(name.lower(), known, n=8, cutoff=0.5)))[:3]
    nearest = f"Nearest: {', '.join(near)}." if near else f"Known: {', '.join(spec.name for spec in bundled())}."
    return UnknownNameError(
        f"No model is called {name!r}.",
        why,
        f"{nearest} Or give a directory with a config.json, or a hub name (organisation/model).",
    )


def load_config(spec: ModelSpec) -> Any:
    """Return the transformers configuration of the model."""
    if spec.hyper_parameters is not None and spec.hyper_parameters["model_type"] == model_kinds.MODEL_TYPE:
        return model_kinds.config_from(spec.hyper_parameters)
    transformers = require("transformers")
    if spec.hyper_parameters is not None:
        parameters = dict(spec.hyper_parameters)
        return transformers.AutoConfig.for_model(parameters.pop("model_type"), **parameters)
    try:
        return transformers.AutoConfig.from_pretrained(
            spec.location, local_files_only=not _hub_answers(spec), trust_remote_code=False
        )
    except Exception as error:  # a wrong value can make transformers raise any exception
        if "trust_remote_code" in str(error):
            raise _own_code(spec) from error
        if spec.origin == "directory":
            what = f"The config.json of {spec.location} cannot be read."
            raise InputError(what, first_line(error), _A_MODEL) from error
        raise _unknown(spec.name, "The hub has no such model, or cannot be reached.") from error


def _own_code(spec: ModelSpec) -> InputError:
    return InputError(
        f"{spec.name} needs its own code.",
        "Its config.json names classes (auto_map) that transformers does not have; tracekit never runs such code.",
        "If you trust it, run it from a script of yours: tracekit run SCRIPT",
    )


def _hub_answers(spec: ModelSpec) -> bool:
    """Return whether the hub answers, because its client retries for half a minute before it uses cached files."""
    if spec.origin == "directory":
        return False
    try:
        urlopen(Request(require("huggingface_hub").constants.ENDPOINT, method="HEAD"), timeout=_HUB_SECONDS).close()
    except HTTPError:
        return True
    except OSError:
        return False
    return True


def build_for(settings: Settings) -> "nn.Module":
    """Return the model of the settings."""
    return build(
        find(settings.model),
        dtype=settings.dtype,
        attention=settings.attention,
        device=settings.torch_device,
        weights=settings.weights,
        training=WORKLOADS[settings.workload].training,
    )


def build(
    spec: ModelSpec,
    *,
    dtype: Dtype = "fp32",
    attention: Attention = "sdpa",
    device: str = "cpu",
    weights: Weights = "random",
    training: bool = False,
) -> "nn.Module":
    """Return the model on `device` in `dtype`, in evaluation mode unless `training`.

    Random weights are drawn on the device itself, so that a 7B model takes seconds on a GPU; under FakeTensorMode
    nothing is allocated. Raises TracekitError if the weights or the attention are not available.
    """
    torch = require("torch")
    config = load_config(spec)
    if isinstance(config, model_kinds.DiffusionConfig):
        return _denoiser(spec, config, dtype, device, weights)
    built = model_class(config, spec.training_class if training else "")
    fused = attention != "eager" and built._supports_sdpa
    options = {"dtype": torch_dtype(dtype), "attn_implementation": "sdpa" if fused else "eager"}
    try:
        narrow = narrow_file_in(Path(spec.location)) if _from_folder(spec, weights) else None
        if weights == "pretrained" and not narrow:
            model = _with_weights(built, spec, options).to(device)
        else:
            torch.manual_seed(0)
            with torch.device(device), _initialization():
                model = built._from_config(config, **options)
                model.tie_weights()  # initialization would tie weights, and fake ones are not initialized
            model = load_plain(model, narrow) if narrow else model
    except (TracekitError, MemoryError, torch.OutOfMemoryError, *_not_of_values()):
        raise
    except Exception as error:  # a wrong value or file can make transformers raise any exception
        if spec.origin == "bundled" and weights == "random":
            raise
        raise _cannot_build(spec, weights, error) from error
    return model.train(training)


def _from_folder(spec: ModelSpec, weights: Weights) -> bool:
    return weights == "pretrained" and spec.origin == "directory"


def _denoiser(
    spec: ModelSpec, config: model_kinds.DiffusionConfig, dtype: Dtype, device: str, weights: Weights
) -> "nn.Module":
    if weights == "pretrained":
        why = "The weights of diffusers are not read."
        raise InputError(f"{spec.name} has random weights only.", why, "They take the same time: leave --weights out.")
    require("torch").manual_seed(0)
    with _initialization():
        return model_kinds.build(config, dtype, device).eval()


def _not_of_values() -> tuple[type[Exception], ...]:
    """Return the exceptions raised when the value of a fake tensor is read, which say nothing about the
    configuration."""
    fake = require("torch._subclasses.fake_tensor")
    return fake.DataDependentOutputException, fake.DynamicOutputShapeException


def _initialization() -> AbstractContextManager[Any]:
    """Skip initialization of fake weights, because some initial distributions read a value back."""
    if require("torch._guards").detect_fake_mode() is None:
        return nullcontext()
    from tracekit.capture.fake.tensors import FakeRates

    entered = ExitStack()
    entered.enter_context(require("transformers.initialization").no_init_weights())
    entered.enter_context(FakeRates())
    return entered


def _with_weights(built: Any, spec: ModelSpec, options: dict[str, Any]) -> Any:
    """Return the model with its published weights, from safetensors files only: loading a pickle can run code."""
    if spec.origin == "directory" and _pickled(Path(spec.location)):
        raise InputError(
            f"The weights of {spec.name} are pickled.",
            "Loading a pickle can run code, so tracekit reads safetensors files only.",
            "Convert them in an environment that you trust: AutoModel.from_pretrained(PATH).save_pretrained(PATH)",
        )
    local = not _hub_answers(spec)
    return built.from_pretrained(
        spec.location, local_files_only=local, use_safetensors=True, trust_remote_code=False, **options
    )


def _pickled(folder: Path) -> bool:
    return not any(folder.glob("*.safetensors")) and any(any(folder.glob(each)) for each in _PICKLES)


def _cannot_build(spec: ModelSpec, weights: Weights, error: Exception) -> TracekitError:
    if weights == "pretrained":
        hint = "Random weights take the same time: leave --weights out, or give a directory that holds the weights."
        return InputError(f"The weights of {spec.name} cannot be loaded.", first_line(error), hint)
    return InputError(f"{spec.name} cannot be built.", first_line(error), "Check the values in its config.json.")
