"""The prediction beside a measurement is for the measured run."""

from pathlib import Path

from tracekit.advise import DraftCheck, SpeculativeDecoding, predicted_speedup
from tracekit.analyzers.core import Interval
from tracekit.measure.expectations import Expectations, Expected
from tracekit.measure.trial import unmeasured


def test_the_check_is_predicted_beside_the_check_and_the_whole_is_told():
    expectations = Expectations(Path(__file__).parents[2] / "examples" / "traces" / "h200_llama-1b_decode.json.gz")
    expected = expectations.predict("speculative-decoding")
    base = expectations._base
    assert expected.speedup == predicted_speedup(DraftCheck(), base)
    assert expected.whole == predicted_speedup(SpeculativeDecoding(), base)
    assert 2.2 < expected.speedup.expected < 2.7  # 2.44 was measured on an H200


def test_the_whole_is_a_caveat():
    result = unmeasured("speculative-decoding", Expected(Interval(2, 2.4, 3), None, whole=Interval(0.8, 1.2, 1.7)))
    assert result.predicted == Interval(2, 2.4, 3)
    assert result.caveats == ("With a draft model, the prediction is 1.20 times (0.80 to 1.70).",)
    assert unmeasured("tf32", Expected(Interval(1, 1, 1), None)).caveats == ()
