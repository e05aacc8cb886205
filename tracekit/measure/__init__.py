"""Measures what was predicted: verifies a run, benches a grid of configurations, and sweeps over GPUs and sizes."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.measure import jobs, script_run, sweeping
    from tracekit.measure.bench_rows import Row, from_csv
    from tracekit.measure.benching import PANELS, BenchGrid, bench
    from tracekit.measure.configurations import configuration, grid_names
    from tracekit.measure.drafting import Draft
    from tracekit.measure.quality import evaluation_of, text_of
    from tracekit.measure.quantized_file import check_format, quantize_to
    from tracekit.measure.sweep_modelled import grid
    from tracekit.measure.sweeping import PAGE, TABLE, sweep
    from tracekit.measure.verify_model import verify
    from tracekit.measure.verifying import verify_run
    from tracekit.measure.worker import Worker, checked
else:
    __getattr__ = lazily(__name__, __file__)
