"""Plotly figures as JSON values. A colour is the name of a CSS property of the page, such as `--memory`."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.reports.figures.arrows import moves_table
    from tracekit.reports.figures.icicles import BOUND_NAMES, GLYPHS, Figure, bound_title, icicle, leaves_of
    from tracekit.reports.figures.rooflines import KINDS, placed, roofline
    from tracekit.reports.figures.timelines import timeline
else:
    __getattr__ = lazily(__name__, __file__)
