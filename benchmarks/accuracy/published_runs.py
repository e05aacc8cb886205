"""Models the runs of published results, and predicts their optimizations."""

import json
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from blind.hosts import HOST_LOGS

from accuracy import published_gpus
from accuracy.published_cases import Case
from tracekit.advise import parse, scenarios, speedup, unchanged
from tracekit.advise.outcomes import sources
from tracekit.analyzers import analyze
from tracekit.analyzers.core import Interval
from tracekit.analyzers.predict import Baseline, Sources, baseline
from tracekit.analyzers.trace import load
from tracekit.capture import complete, model_trace
from tracekit.run import Settings

_NOT_BUNDLED = {
    "llama-2-7b": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
    }
}
_SAME_SHAPES = {"llama-3-8b": "llama-3.1-8b"}


@dataclass(frozen=True)
class Predicted:
    case: Case
    before_ms: Interval
    """Modelled latency of the step before the optimization."""
    speedup: Interval
    sources: Sources
    """Settings on which the speed-up depends."""

    @property
    def error(self) -> float:
        return abs(self.speedup.expected / self.case.speedup - 1)

    @property
    def right_sign(self) -> bool:
        """Whether both show a gain, or both a loss, or the published change is below 3 %."""
        published, predicted = self.case.speedup, self.speedup.expected
        return abs(published - 1) <= 0.03 or (published > 1) == (predicted > 1)

    @property
    def inside(self) -> bool:
        return self.speedup.low <= self.case.speedup <= self.speedup.high


def predicted(case: Case) -> Predicted:
    base = run(case.gpu, case.model, case.workload, case.batch, case.seq, case.dtype, case.attention)
    before = scenarios(parse(case.already), base, HOST_LOGS) if case.already else unchanged(base, HOST_LOGS)
    after = scenarios(parse("+".join(filter(None, [case.already, case.apply]))), base, HOST_LOGS)
    hosts = (base.host_range.low, 1.0, base.host_range.high)
    low, expected, high = (before.expected.simulate(before.expected.ops, host) / 1e6 for host in hosts)
    return Predicted(case, Interval(low, expected, high), speedup(before, after), sources(before, after))


@cache
def run(gpu: str, model: str, workload: str, batch: int, seq: int, dtype: str, attention: str) -> Baseline:
    """Return the modelled run as a baseline."""
    target = published_gpus.gpu(gpu)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        options = {"workload": workload, "batch_size": batch, "seq_len": seq, "dtype": dtype, "attention": attention}
        asked = Settings(model=_named(model, folder), gpu=target.id, device="model", **options)  # type: ignore[arg-type]
        model_trace.write(complete(asked), target, folder / "trace.json.gz")
        trace = load(folder / "trace.json.gz")
        base = baseline(trace, analyze(trace, None))
    assert base is not None
    ops = base.ops[base.ops.phase != "optimizer"]  # the published steps of training end with the backward pass
    host = target.host_op_us
    open_range = Interval(host.low / host.expected, 1.0, host.high / host.expected)
    return replace(base, ops=ops, gpu=target, host_range=open_range)


def _named(model: str, folder: Path) -> str:
    if model not in _NOT_BUNDLED:
        return _SAME_SHAPES.get(model, model)
    (folder / "config.json").write_text(json.dumps(_NOT_BUNDLED[model]))
    return str(folder)
