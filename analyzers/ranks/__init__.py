"""Analyzes the ranks of a job: summarizes each, matches their collectives, aligns their clocks, and finds who waits
for whom. Replays the operations of a job, and finds what it loses to stragglers.
"""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.analyzers.ranks.causes import Reason
    from tracekit.analyzers.ranks.ideal import Remedy, ReplayedJob, replay
    from tracekit.analyzers.ranks.job import analyze_ranks, copies, foreign
    from tracekit.analyzers.ranks.operations import is_operations, read_operations
    from tracekit.analyzers.ranks.result import Job, Straggler, WhatIf
    from tracekit.analyzers.ranks.stragglers import LEAST_COST
    from tracekit.analyzers.ranks.summary import RankSummary, summarize
    from tracekit.analyzers.ranks.what_ifs import ACCUMULATED, IN_TIME, LARGER_BUCKETS
else:
    __getattr__ = lazily(__name__, __file__)
