"""Writes benches, sweeps and predictions of scaling as text and pages."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.reports.measure import sweep
    from tracekit.reports.measure.bench import bench_html, bench_text, figure
    from tracekit.reports.measure.sweep import basis, sentences, sweep_text
    from tracekit.reports.measure.sweep_page import sweep_html
else:
    __getattr__ = lazily(__name__, __file__)
