"""Writes benches, sweeps and predictions of scaling as documents, and figures."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.reports.measure import sweep
    from tracekit.reports.measure.bench import bench_document, figure
    from tracekit.reports.measure.sweep import basis, sentences, sweep_document
else:
    __getattr__ = lazily(__name__, __file__)
