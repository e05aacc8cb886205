"""The optimizations, and what they would give: scenarios of each, the search for a plan, and recommendations."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.advise import corrections
    from tracekit.advise.catalogue import KNOWN, OPTIMIZATIONS, find, in_order, parse
    from tracekit.advise.combined import Combined, OtherGPU, steps_of
    from tracekit.advise.corrections import Correction, corrected, here
    from tracekit.advise.fitting import memory_fit, saving_remedies
    from tracekit.advise.gains import WORTHWHILE, pays
    from tracekit.advise.optimization import Optimization
    from tracekit.advise.optimizations.fused_kernels import FusedKernels
    from tracekit.advise.optimizations.speculative_decoding import (
        CHECKED,
        AssistedGeneration,
        DraftCheck,
        SpeculativeDecoding,
        acceptance_of,
    )
    from tracekit.advise.outcomes import (
        EXPECTED,
        Scenarios,
        doubts,
        op_class_times,
        predicted_speedup,
        refusal,
        scenarios,
        speedup,
        start_of,
        too_large,
        unchanged,
    )
    from tracekit.advise.predicted import advise, latency_us
    from tracekit.advise.reasons import share_of
    from tracekit.advise.recommending import (
        RECORD,
        fit_problems,
        fitted,
        recommend,
        reordered_by_measurements,
        why_nothing,
    )
    from tracekit.advise.search import Search, Steps
else:
    __getattr__ = lazily(__name__, __file__)
