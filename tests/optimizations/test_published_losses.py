"""Published losses, predicted from modelled runs."""

import pytest

from tracekit.advise import find, predicted_speedup
from tracekit.analyzers import analyze
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.predict import baseline
from tracekit.analyzers.trace import load
from tracekit.capture import complete, model_trace
from tracekit.run import Settings

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def decode(tmp_path_factory):
    """Return the modelled run of one decoded token on an A100."""
    runs = {}

    def run(model, dtype):
        if model not in runs:
            path = tmp_path_factory.mktemp("run") / "trace.json.gz"
            asked = Settings(model=model, gpu="a100", device="model", workload="decode", seq_len=60, dtype=dtype)
            model_trace.write_trace(complete(asked), hardware.find("a100"), path)
            trace = load(path)
            runs[model] = baseline(trace, analyze(trace, None))
        return runs[model]

    return run


PUBLISHED = [
    ("gpt2", "fp32", "llm-int8", 32.7 / 96.2, 0.07),
    ("mistral-7b", "fp16", "nf4", 18.7 / 26.7, 0.10),
    ("mistral-7b", "fp16", "sdpa:flash-attention-2", 20.4 / 26.7, 0.25),
    ("gpt2", "fp32", "half-precision:fp16", 99.6 / 96.2, 0.05),
]


@pytest.mark.parametrize(("model", "dtype", "name", "published", "tolerance"), PUBLISHED)
def test_published_tokens_a_second(decode, model, dtype, name, published, tolerance):
    gain = predicted_speedup(find(name), decode(model, dtype))
    assert gain.expected == pytest.approx(published, abs=tolerance)
    assert (gain.expected < 1) == (published < 1) or abs(published - 1) < 0.05


def test_most_lie_in_their_intervals_which_hold_85_percent_of_all_rows(decode):
    gains = [
        (predicted_speedup(find(name), decode(model, dtype)), published)
        for model, dtype, name, published, _ in PUBLISHED
    ]
    assert sum(gain.low <= published <= gain.high for gain, published in gains) >= 3


def test_torchao_does_not_cover_conv1d(decode):
    half = find("half-precision").applied(decode("gpt2", "fp32"), "expected")
    assert "Conv1D" in find("int8-dynamic").objection(half)
