"""Measures the output of a model on a text: its perplexity, and the most likely tokens."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from tracekit.analyzers.core import InputError, reading
from tracekit.analyzers.results import DeviceReading
from tracekit.analyzers.trace import Latency
from tracekit.apply import SEED, Subject
from tracekit.capture import NoRanges, clock_of, config_of, kind_of, longest_sequence, models, time_step
from tracekit.measure import device_state, trial
from tracekit.measure.bench_rows import Row
from tracekit.measure.configurations import Configuration
from tracekit.measure.interleaved import WALL_S, CpuShare, noise
from tracekit.measure.side_by_side import Measured, Ready, beside, ready, warm
from tracekit.run import Settings, require

_WINDOW = 512
_SAMPLE = "sample.txt"


def sample() -> str:
    """Return the opening of Alice's Adventures in Wonderland (Lewis Carroll, 1865), which is in the public domain."""
    return (resources.files("tracekit.measure") / _SAMPLE).read_text(encoding="utf-8")


def text_of(path: Path | None) -> str:
    """Return the text in a file, or the sample for None. Raises InputError if it cannot be read, or is empty."""
    if path is None:
        return sample()
    what, hint = f"{path} cannot be read as text.", "Name a text file, or leave out --text."
    try:
        with reading(what, hint):
            text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(what, "It is not in UTF-8.", hint) from error
    if not text.strip():
        raise InputError(what, "It is empty.", hint)
    return text


@dataclass(frozen=True)
class Quality:
    """The output of a model on a text."""

    perplexity: float
    """Exponential of the mean negative log likelihood per token."""
    choices: Any
    """Tensor of the most likely token at each position."""

    def agreement(self, other: "Quality") -> float:
        """Return the fraction of positions at which both predict the same most likely token."""
        return float((self.choices == other.choices).float().mean())


def quality(subject: Subject, text: str) -> Quality | None:
    """Return the quality of a model's output on a text, in windows of 512 tokens; None if it does not predict the next
    token.

    With random weights the tokens are the text's bytes, because such a model has no training text whose tokenizer would
    fit.
    """
    config = config_of(subject.model)
    if kind_of(config) != "a decoder" or subject.training:
        return None
    torch = require("torch")
    with torch.inference_mode(), subject.numerics():
        made = [_read_texts(subject.model, window) for window in token_windows(subject, text) if len(window) > 1]
    if not made:
        return None
    losses, choices = (torch.cat(each) for each in zip(*made, strict=True))
    return Quality(math.exp(min(losses.mean().item(), 700.0)), choices)


def token_windows(subject: Subject, text: str) -> Iterator[Any]:
    """Yield the tokens of a text, 512 at a time (the last ones may be fewer)."""
    ids = require("torch").tensor(_tokens(subject, text), device=subject.settings.torch_device)
    yield from ids.split(min(_WINDOW, longest_sequence(config_of(subject.model))))


def _read_texts(model: Any, window: Any) -> tuple[Any, Any]:
    """Return the loss, and the most likely token at each position except the last."""
    logits = model(input_ids=window[None], use_cache=False).logits[0, :-1].float()
    losses = require("torch").nn.functional.cross_entropy(logits, window[1:], reduction="none")
    return losses.double(), logits.argmax(-1)


def _tokens(subject: Subject, text: str) -> list[int]:
    settings = subject.settings
    if settings.weights == "random":
        return [byte % config_of(subject.model).vocab_size for byte in text.encode()]
    tokenizer = require("transformers").AutoTokenizer.from_pretrained(
        models.find(settings.model).location, trust_remote_code=False
    )
    return list(tokenizer(text).input_ids)


_CALIBRATION_WINDOWS = 16


@dataclass(frozen=True)
class Request:
    """A row that is to be measured."""

    row: Row
    settings: Settings
    """Settings of the run, with the dtype and the attention of the first configuration."""
    first: Configuration
    configuration: Configuration
    text: str
    calibration: str = ""
    """Text that `awq` and `smoothquant` are calibrated with."""
    wall_s: float = WALL_S
    """Seconds of wall time that the comparison with the first configuration may take."""


@dataclass
class _Cache:
    """The prepared first configuration of a run, which is kept between rows."""

    first: dict[tuple[Settings, Configuration], Ready] = field(default_factory=dict)
    quality: dict[tuple[Settings, Configuration, str], Quality | None] = field(default_factory=dict)

    def prepare(self, request: Request) -> Ready:
        key = (request.settings, request.first)
        if key not in self.first:
            self.release()
            self.first[key] = warm(_applied(request.first, built(request.settings), request))
        return self.first[key]

    def quality_of(self, request: Request) -> Quality | None:
        """Return the quality of the first configuration's output on the text."""
        key = (request.settings, request.first, request.text)
        if key not in self.quality:
            self.quality[key] = quality(self.prepare(request).subject, request.text)
        return self.quality[key]

    def release(self) -> None:
        self.first.clear()
        self.quality.clear()
        device_state.release()


_CACHE = _Cache()


def built(settings: Settings) -> Subject:
    return Subject(model=models.build_for(settings), settings=settings)


def measured(request: Request) -> Row:
    """Return the row with its measurements. Exceptions of the model, a package or the device pass through."""
    before, resident = _CACHE.prepare(request), device_state.allocated_bytes()
    if request.configuration == request.first:
        return _filled(request, before, None)
    try:
        after = ready(changed(before.subject, request))
        comparison = beside(before, after, resident_bytes=resident, wall_s=request.wall_s)
        return _filled(request, after, comparison)
    finally:
        require("torch.compiler").reset()


def release() -> None:
    """Free the models that are kept between rows. They are built again when they are needed."""
    _CACHE.release()


def changed(subject: Subject, request: Request) -> Subject:
    """Apply the request's configuration to the run as it was built, without the changes of the first configuration."""
    plain = replace(subject, compile_mode="", graphs=False, static_cache=False, fused_optimizer=False)
    return _applied(request.configuration, plain, request)


def _applied(configuration: Configuration, subject: Subject, request: Request) -> Subject:
    def windows(calibrated: Subject) -> list[Any]:
        every = list(token_windows(calibrated, request.calibration))
        return [window for window in every if len(window) == len(every[0])][:_CALIBRATION_WINDOWS]

    return configuration.apply(subject, windows)


def _filled(request: Request, run: Ready, comparison: Measured | None) -> Row:
    """Return the row with its measurements: first only the latency, then the state under load, then the others."""
    settings = run.subject.settings
    with run.subject.numerics():
        cpu = CpuShare()
        times = time_step(run.step, clock_of(settings.device))
        warnings = comparison.warnings if comparison else (cpu.warning(),) if settings.device == "cpu" else ()
        state, busy = device_state.under_load(lambda: run.step(NoRanges()))
    latency = comparison.after if comparison else times.step
    phases = times.phases
    items, unit = trial.items_of(settings)
    return replace(
        request.row,
        **_timed(latency, items),
        **(_compared(comparison) if comparison else {"speedup": 1.0, "speedup_low": 1.0, "speedup_high": 1.0}),
        **_read(state),
        unit=unit,
        time_to_first_token_us=_median(phases.get("time_to_first_token")),
        time_between_tokens_us=_median(phases.get("time_between_tokens")),
        peak_memory_bytes=(comparison.peak_memory_bytes if comparison else run.peak_memory_bytes()) or None,
        gpu_utilization=busy,
        **_on_text(quality(run.subject, request.text), _CACHE.quality_of(request)),
        device=trial.device_name(settings),
        versions=" ".join(f"{name}={number}" for name, number in trial.versions().items()),
        seed=SEED,
        caveats=" ".join(filter(None, (*warnings, *_caveats(latency, state)))),
    )


def _timed(latency: Latency, items: int) -> dict[str, Any]:
    return {
        "latency_us": latency.median_us,
        "latency_p10_us": latency.p10_us,
        "latency_p90_us": latency.p90_us,
        "items_per_s": items / latency.median_us * 1e6,
    }


def _compared(comparison: Measured) -> dict[str, Any]:
    gain = comparison.speedup
    cells: dict[str, Any] = {"speedup": gain.expected, "speedup_low": gain.low, "speedup_high": gain.high}
    difference = comparison.difference
    if difference:
        cells |= {"max_logit_difference": difference.max_abs, "relative_difference": difference.relative}
        cells |= {"kl": difference.kl, "agreement": difference.agreement}
    return cells


def _on_text(made: Quality | None, first: Quality | None) -> dict[str, Any]:
    if made is None or first is None:
        return {}
    return {"perplexity": made.perplexity, "text_agreement": made.agreement(first)}


def _read(state: DeviceReading | None) -> dict[str, Any]:
    if state is None:
        return {}
    return {"sm_clock_mhz": state.sm_clock_mhz, "temperature_c": state.temperature_c, "power_w": state.power_w}


def _median(latency: Latency | None) -> float | None:
    return latency.median_us if latency else None


def _caveats(latency: Latency, state: DeviceReading | None) -> list[str]:
    return [line for line in (noise(latency), *device_state.drift(state, state)) if line]
