"""Time to first token and time between tokens of a run that generates text."""

from tracekit.analyzers.capture_info import Latency
from tracekit.analyzers.results import Analysis
from tracekit.reports.numbers import duration, significant

FIRST, BETWEEN = "time_to_first_token", "time_between_tokens"


def token_times(analysis: Analysis) -> str:
    """Return the sentence; "" for a run that does not generate."""
    capture = analysis.source.capture
    if capture is None or FIRST not in capture.phases:
        return ""
    between = capture.phases.get(BETWEEN)
    parts = [f"first after {_time(capture.phases[FIRST])}"]
    if between:
        parts += [f"then one each {_time(between)}", f"{_rate(between, capture.batch_size)} tokens/s while decoding"]
    if capture.source == "modelled":
        parts[0] = f"MODELLED {parts[0]}"
    return ", ".join(parts)


def tokens_per_s(between: Latency, batch_size: int) -> float:
    """Return the tokens of a batch that a step of decoding yields, over its time."""
    return max(batch_size, 1) * 1e6 / between.median_us


def _time(latency: Latency) -> str:
    spread = f" ({duration(latency.p10_us)} to {duration(latency.p90_us)})" if latency.p90_us > latency.p10_us else ""
    return duration(latency.median_us) + spread


def _rate(between: Latency, batch_size: int) -> str:
    return significant(tokens_per_s(between, batch_size))
