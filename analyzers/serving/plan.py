"""Answers how an engine serves a stream of requests with a model on GPUs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from tracekit.analyzers.attribute import Batch
from tracekit.analyzers.core import InputError
from tracekit.analyzers.cost import GPU
from tracekit.analyzers.serving.declarations import Format, all_engines
from tracekit.analyzers.serving.deployment import Deployment, changes_of, divided, ladder, pareto, settings, with_format
from tracekit.analyzers.serving.metrics import SERVE_PLAN, Measures, between, measures, not_served, over_time, row
from tracekit.analyzers.serving.model import Model
from tracekit.analyzers.serving.passes import PassTimes
from tracekit.analyzers.serving.pools import simulate
from tracekit.analyzers.serving.recorded import Comparison, RecordedPass, compared
from tracekit.analyzers.serving.request_stream import Run, Stream, stream

_DRAFTED = 3
"""Tokens that are drafted for each pass."""
_USUAL_HIT = 0.5
_USUAL_ACCEPTANCE = (0.6, 0.8)

_KEPT = 0.99
_HALVINGS = 12
_LEAST_TOKENS = 4096
"""Tokens of a cache below which a deployment is not proposed."""


@dataclass(frozen=True)
class Question:
    """A model, GPUs, an engine, and its requests."""

    model: str
    gpu: str
    requests: str
    engine: str = "vllm"
    dtype: str = "bf16"
    tensor: int = 1
    expert: int = 1
    data: int = 1
    pools: tuple[int, int] | None = None
    """Copies of the model that process prompts, and copies that decode."""
    most_requests: int | None = None
    most_tokens: int | None = None
    graphs: bool = True
    prefix_hit: float = 0.0
    acceptance: tuple[float, float] | None = None
    slo: Mapping[str, float] = field(default_factory=dict)
    price: float | None = None
    """Price of a GPU for an hour."""
    search: bool = False
    trace: str | None = None
    """A trace of the running engine, to which the twin is fitted."""
    seed: int = 0


@dataclass(frozen=True)
class Setting:
    """A deployment and what it gives; `problem` says why it serves nothing."""

    name: str
    deployment: Deployment
    found: Measures | None
    row: dict[str, object]

    @property
    def problem(self) -> str:
        return str(self.row["problem"])


@dataclass(frozen=True)
class ServePlan:
    """The answer to a question."""

    question: Question
    requests: Stream
    asked: Setting
    over_time: pd.DataFrame
    comparison: Comparison | None
    """The twin beside the passes of a trace."""
    ladder: tuple[Setting, ...]
    changes: tuple[Setting, ...]
    """Settings that differ in one thing."""
    searched: tuple[Setting, ...]
    best: tuple[bool, ...]
    """Whether no other searched setting is better in both rate and time between tokens."""

    @property
    def table(self) -> pd.DataFrame:
        """SERVE_PLAN, with a row for each setting."""
        rows = [each.row for each in (self.asked, *self.ladder, *self.changes, *self.searched)]
        return SERVE_PLAN.frame({column.name: [each[column.name] for each in rows] for column in SERVE_PLAN.columns})


def planned(question: Question, model: Model, gpu: GPU, recorded: Sequence[RecordedPass] = ()) -> ServePlan:
    """Return the answer, by a twin that is fitted to recorded passes if there are some. Raises InputError for requests
    that cannot be served, or a model that does not fit."""
    requests, of = stream(question.requests, question.seed), _deployment(question, model, gpu)
    _check(requests, of)
    comparison = compared(of, recorded, _usual(requests, simulate(PassTimes(of), requests))) if recorded else None
    if comparison:
        of = replace(of, fitted=comparison.fitted)

    def simulated(pairs: Iterable[tuple[str, Deployment]]) -> tuple[Setting, ...]:
        return tuple(_simulated(name, each, requests, question)[0] for name, each in pairs)

    asked, run = _simulated(_name(of), of, requests, question)
    accepted = sum(question.acceptance or _USUAL_ACCEPTANCE) / 2
    rungs = simulated(ladder(of, question.prefix_hit or _USUAL_HIT, _DRAFTED, accepted))
    searched = simulated(settings(of)) if question.search else ()
    best = pareto([_place(each) for each in searched])
    changes = simulated(changes_of(of))
    if question.slo and not any(keeps(each) for each in (asked, *changes, *searched)):
        changes += tuple(_fewer(of, question))
    return ServePlan(question, requests, asked, over_time(run), comparison, rungs, changes, searched, tuple(best))


def keeps(setting: Setting) -> bool:
    """Return whether all requests but one in a hundred keep the limits."""
    return setting.found is not None and setting.found.kept >= _KEPT


def _fewer(of: Deployment, question: Question) -> Iterator[Setting]:
    """Yield the same deployment with the most users, or the highest rate, by halving, at which it keeps the limits."""
    kind, _, rest = question.requests.partition(":")
    number, _, lengths = rest.partition(",")
    if kind not in ("closed", "poisson"):
        return
    for halvings in range(1, _HALVINGS):
        most = float(number) / 2**halvings
        if kind == "closed" and (most := int(most)) < 1:
            return
        name = counted_users(int(most)) if kind == "closed" else f"{most:.3g} requests a second"
        setting, _ = _simulated(name, of, stream(f"{kind}:{most!r},{lengths}", question.seed), question)
        if keeps(setting):
            yield setting
            return


def _usual(requests: Stream, run: Run) -> Batch:
    """Return the batch of a pass in which all users, or the mean number of requests in flight, decode."""
    decoding = requests.users or round(sum(each.running for each in run.moments) / max(1, len(run.moments)))
    tokens = [each.prompt_tokens + each.output_tokens / 2 for each in requests.requests]
    return Batch(0, 0, 0, max(1, decoding), round(decoding * sum(tokens) / len(tokens)))


def _place(setting: Setting) -> tuple[float, float]:
    """Return tokens per second of a GPU, and the time between tokens."""
    if setting.found is None:
        return 0.0, float("inf")
    return setting.found.tokens_per_s.expected / setting.deployment.gpus, setting.found.tpot_ms.expected


def _deployment(question: Question, model: Model, gpu: GPU) -> Deployment:
    engine = all_engines()[question.engine]
    engine = replace(
        engine,
        most_requests=question.most_requests or engine.most_requests,
        most_tokens=question.most_tokens or engine.most_tokens,
        graphs=engine.graphs if question.graphs else (),
    )
    of = Deployment(
        model,
        gpu,
        engine,
        Format(question.dtype, engine.cache[question.dtype]),
        question.tensor,
        question.expert,
        question.data,
        question.prefix_hit,
        pools=question.pools,
    )
    if question.tensor % question.expert or question.tensor % question.data:
        why = f"{question.tensor} GPUs are not a multiple of both."
        raise InputError("The GPUs cannot be divided so.", why, "Give --ep and --dp that divide --tp.")
    accepted = sum(question.acceptance or (0.0, 0.0)) / 2
    return replace(of, drafted=_DRAFTED if accepted else 0, acceptance=accepted)


def _check(requests: Stream, of: Deployment) -> None:
    """Raise InputError if the model does not hold one of the requests, or the GPUs do not hold the model."""
    if requests.longest > of.model.positions:
        what = f"A request has {requests.longest:,} tokens, prompt and output together."
        why = f"{of.model.name} has {of.model.positions:,} positions."
        raise InputError(what, why, f"Give requests of at most {of.model.positions:,} tokens, or another model.")
    if of.tokens_that_fit < 1:
        need = of.weight_bytes * of.tensor / 1e9
        what = f"{of.model.name} in {of.format.dtype} does not fit on {of.tensor} {of.gpu.name}."
        why = f"Its weights take {need:,.0f} GB, and an engine leaves room for a cache beside them."
        raise InputError(what, why, _that_fits(of))
    shortest = min(each.prompt_tokens + each.output_tokens for each in requests.requests)
    if shortest + of.tokens_of_a_request > of.tokens_that_fit:
        what = f"The KV cache holds {int(of.tokens_that_fit):,} tokens."
        raise InputError(what, f"Each request has {shortest:,} or more.", _that_fits(of))


def _that_fits(of: Deployment) -> str:
    """Return the nearest deployment that fits, as a sentence."""
    for tensor in (of.tensor, 2, 4, 8, 16):
        for dtype in (of.format.dtype, "fp8", "int4"):
            near = with_format(replace(of, tensor=tensor, expert=1, data=1), dtype)
            if tensor >= of.tensor and near.tokens_that_fit > _LEAST_TOKENS:
                return f"The nearest that fits is --tp {tensor} --dtype {dtype}."
    return "No more than 16 of these GPUs hold it."


def _simulated(name: str, of: Deployment, requests: Stream, question: Question) -> tuple[Setting, Run]:
    if of.tokens_that_fit < 1:
        return Setting(name, of, None, not_served(name, of.gpus, "The weights leave no memory for a KV cache.")), Run(
            []
        )
    run = simulate(PassTimes(of), requests)
    if not run.served:
        return Setting(name, of, None, not_served(name, of.gpus, "The KV cache holds none of the requests.")), run
    found = measures(run, of, requests, question.slo)
    if of.drafted and question.acceptance:
        ends = (replace(of, acceptance=each) for each in question.acceptance)
        few, many = (measures(simulate(PassTimes(each), requests), of, requests, question.slo) for each in ends)
        found = between(few, found, many)
    return Setting(name, of, found, row(name, of, run, found, question.price)), run


def counted_users(users: int) -> str:
    return "one user" if users == 1 else f"{users:,} users"


def _name(of: Deployment) -> str:
    copies = f", {of.pools[0]} + {of.pools[1]} copies" if of.pools else ""
    return f"{of.engine.title}, {of.format.dtype}, {divided(of.tensor, of.expert, of.data)}{copies}"
