"""The values that answers are made of: an analysis with its tables, recommendations, evidence, and measurements beside
predictions.
"""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.analyzers.results.analysis import (
        BOUNDS,
        MISSING,
        START_UP_ONLY,
        Analysis,
        BoundShares,
        CounterSource,
        Coverage,
        DeviceTime,
        Kind,
        Projection,
        Runtime,
        Source,
        StepLatency,
        Timeline,
    )
    from tracekit.analyzers.results.measured import DeviceReading, Difference, Quality, Verification, Verified
    from tracekit.analyzers.results.tables import (
        CAUSE_MEANINGS,
        CAUSES,
        COUNTER_MEANINGS,
        COUNTERS_COMPARISON,
        COUNTS,
        EARLIER_WORK,
        FAMILY_COUNTER,
        FUSION_PLAN,
        GAPS,
        HOST_CAUSES,
        HOST_SPANS,
        IDLE_CAUSES,
        KERNELS,
        LAUNCHING,
        LAYER_OPS,
        LAYER_PARTS,
        LAYER_TYPES,
        LAYERS,
        NOT_RECORDED,
        OPS,
        OUTSIDE_MODEL,
        PAUSE,
        PHASES,
        PLACES,
        PREDICTED_WORK,
        PROJECTIONS,
        RANGES,
        SET_APART,
        START_UP,
        STEPS,
        WORK,
        Evidence,
        Statement,
        Statements,
        of_step,
        say,
    )
    from tracekit.analyzers.results.values import (
        HOST_AND_GAPS,
        NOT_SIMULATED,
        PROFILER,
        Change,
        Check,
        Considered,
        Costs,
        GainThere,
        HostSpeed,
        Memory,
        MemoryFit,
        OpClassTime,
        PlanStep,
        PredictedBaseline,
        Prediction,
        Recommendation,
        Remedy,
    )
else:
    __getattr__ = lazily(__name__, __file__)
