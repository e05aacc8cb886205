"""The page's first section: how blind rounds are run, and the last one's numbers."""

from pathlib import Path

ROUNDS = Path(__file__).parents[1] / "blind" / "rounds"

_PROTOCOL = """## Blind rounds

Blind rounds measure the accuracy for models, shapes and machines that were not used for fitting. A round has six steps:

1. **Draw.** A seed draws at least 40 rows, each a model, a workload, a shape, a dtype and an optimization, from
   [a list of published configurations](../benchmarks/blind/models.toml), balanced over kinds of models, workloads and
   optimizations. The plan is committed.
2. **Trace.** On an H100 and an H200, each unmodified run is traced by `torch.profiler`, and timed without a profiler,
   by code that does not import tracekit.
3. **Predict.** tracekit predicts every row from those traces. The predictions, with intervals,
   refusals and first advice, are committed separately.
4. **Measure.** Only then, the optimizations are applied with plain PyTorch, and timed in alternation with the
   unmodified run.
5. **Publish.** The tables below show all results of the round; each row stays in `benchmarks/blind/rounds`. Because a
   host's speed changes between tracing and measuring, each row is predicted a second time from the same trace by the
   same code, with the latency that the unmodified run had during the measurement, as `tracekit verify` does.
6. **Only then fix.** The model is changed only after a round is published. The next round tests the changes on other
   rows. Models that are held out for a round are not drawn by earlier rounds.

[How to run one](../benchmarks/blind/README.md). The sections below use rows that
constants may have been fitted to.
"""


def section() -> str:
    scores = sorted(ROUNDS.glob("*/score.md"), key=lambda path: path.parent.name)
    if not scores:
        return f"{_PROTOCOL}\nNo round has been measured yet.\n"
    return f"{_PROTOCOL}\n{scores[-1].read_text(encoding='utf-8')}"
