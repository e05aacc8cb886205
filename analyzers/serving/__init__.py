"""A twin of a serving engine: passes of a model on GPUs, simulated over a stream of requests."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.analyzers.serving.declarations import Engine, Format, all_engines
    from tracekit.analyzers.serving.deployment import Deployment, ladder, runs, settings
    from tracekit.analyzers.serving.metrics import PARTS, SERVE_PLAN, Measures, measures, over_time, row
    from tracekit.analyzers.serving.model import Model, bundled_models, model_of
    from tracekit.analyzers.serving.passes import Chunk, PassTimes
    from tracekit.analyzers.serving.plan import Question, ServePlan, Setting, counted_users, keeps, planned
    from tracekit.analyzers.serving.pools import simulate
    from tracekit.analyzers.serving.recorded import ComparedPass, Comparison, RecordedPass, recorded_passes
    from tracekit.analyzers.serving.request_stream import Request, Run, Stream, stream
else:
    __getattr__ = lazily(__name__, __file__)
