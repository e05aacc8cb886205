"""The page's first section: how blind rounds are run, and the last one's numbers."""

from pathlib import Path

ROUNDS = Path(__file__).parents[1] / "blind" / "rounds"

_PROTOCOL = """## Blind rounds

The accuracy to expect where nobody looked: of models, shapes and machines that nothing was fitted on. A round:

1. **Draw.** A seed draws at least 40 rows, each a model, a workload, a shape, a dtype and an optimization, from
   [a list of published configurations](../benchmarks/blind/models.toml), balanced over kinds of models, workloads and
   optimizations. The plan is committed.
2. **Trace.** On an H100 and an H200 each run is traced as it is by `torch.profiler`, and timed without a profiler, by
   code that imports nothing of tracekit.
3. **Predict.** tracekit predicts every row from those traces. The predictions, intervals, refusals and first advice
   included, are committed, in a commit of their own.
4. **Measure.** Only then are the optimizations applied, by plain PyTorch, and timed in turn with the run as it is.
5. **Publish.** The tables below are the round's, whatever they say; each row stays in `benchmarks/blind/rounds`. A
   host's speed changes between tracing and measuring, so each row is predicted a second time from the same trace by the
   same code, told the latency of the unmodified run beside it and nothing else, as `tracekit verify` does.
6. **Only then mend.** What a round shows may mend the model, and nothing is fitted before. The next round tests that
   on other rows. Models that the list holds out for a round are drawn by no earlier one.

[How to run one](../benchmarks/blind/README.md). Everything below this section is judged on rows that constants may have
seen.
"""


def section() -> str:
    scores = sorted(ROUNDS.glob("*/score.md"), key=lambda path: path.parent.name)
    if not scores:
        return f"{_PROTOCOL}\nNo round has been measured yet.\n"
    return f"{_PROTOCOL}\n{scores[-1].read_text(encoding='utf-8')}"
