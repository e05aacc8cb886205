"""The head of an analysis in a terminal: the headline, key lines, and the next step."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tracekit.analyzers.interval import Interval
from tracekit.analyzers.results import Analysis
from tracekit.reports.abstention import abstention
from tracekit.reports.console import paragraph
from tracekit.reports.measured_gains import MeasuredGain, measured_gains, of_advice
from tracekit.reports.names import printable
from tracekit.reports.numbers import measured, percent, speedup, times
from tracekit.reports.sentences import sentences

COLOURS = {"compute": "red", "memory": "bright_blue", "launch": "yellow", "latency": "magenta", "transfer": "green"}
_SHADES = {"compute": "█", "memory": "▓", "launch": "░", "latency": "▒", "transfer": "▚", "unknown": "·"}
"""Characters that are distinct without colour."""
_ADVISED = 5
_AXIS = 24
_WIDE = 100


def head(analysis: Analysis, lines: list[tuple[str, str]], width: int) -> RenderableType:
    """Return the head, `width` columns wide. `lines` are pairs of a label and a text; the headline is first."""
    (_, headline), *rest = lines
    grid = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in rest:
        grid.add_row(f"  {label}", _bound_bar(analysis, width) if label == "bound" else Text(printable(text)))
    return Group(Text(headline, style="bold"), Text(), grid, Text(), _advice(analysis, width))


def _bound_bar(analysis: Analysis, width: int) -> Text:
    """Return a bar of the step's time by bound, and its legend."""
    shares = [(name, share) for name, share in analysis.bound.ranked() if share > 0]
    length = max(20, min(60, width - 16))
    ends = [round(length * sum(share for _, share in shares[: n + 1])) for n in range(len(shares))]
    bar, legend, at = Text(), Text(), 0
    for (name, share), end in zip(shares, ends, strict=True):
        bar.append(_SHADES[name] * (end - at), COLOURS.get(name, "dim"))
        legend.append(f"{_SHADES[name]} ", COLOURS.get(name, "dim"))
        legend.append(f"{name} {percent(share)}   ")
        at = end
    return bar.append("\n").append_text(legend)


def _advice(analysis: Analysis, width: int) -> RenderableType:
    """Return the recommendations, with their intervals on an axis that begins at 1×."""
    if abstained := abstention(analysis):
        return paragraph(f"No recommendation: {abstained[0].lower()}{abstained[1:]}", width)
    first, gains = analysis.recommendations[:_ADVISED], measured_gains(analysis)
    axis = max(advice.speedup.high for advice in first)
    view = Table(title="What to do next", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for heading in ("", "", "predicted", *(["measured"] if gains else [])):
        view.add_column(heading, no_wrap=True, header_style="dim", justify="right" if heading else "left")
    if width >= _WIDE:
        view.add_column(f"1×{times(axis, axis):>{_AXIS - 2}}", no_wrap=True, header_style="dim")
    view.add_column("", ratio=1)
    for rank, advice in enumerate(first, 1):
        gain = of_advice(gains, advice.id)
        was = _measured(gain)
        view.add_row(
            Text(f"  {rank}.", style="dim"),
            Text(printable(advice.title), style="bold"),
            Text(speedup(advice.speedup), style="cyan"),
            *([was] if gains else []),
            *([_interval(advice.speedup, axis)] if width >= _WIDE else []),
            Text(sentences(advice.reason), style="dim"),
        )
    more = len(analysis.recommendations) - len(first)
    return Group(view, *([Text(f"      and {more} more", style="dim")] if more else []))


def _measured(gain: MeasuredGain | None) -> Text:
    if gain is None or gain.measured is None:
        return Text("failed" if gain else "", style="red")
    return Text(measured(gain.measured), style="green" if gain.inside == "yes" else "yellow")


def _interval(interval: Interval, axis: float) -> Text:
    """Return a line from the lower to the upper end, with a mark at the expected value."""

    def place(value: float) -> int:
        return round((_AXIS - 1) * (value - 1) / (axis - 1)) if axis > 1 else 0

    low, expected, high = (
        min(max(place(end), 0), _AXIS - 1) for end in (interval.low, interval.expected, interval.high)
    )
    row = [" " if at < low or at > high else "━" for at in range(_AXIS)]
    row[expected] = "●"
    return Text("".join(row), style="cyan")
