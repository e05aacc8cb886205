"""Finds the traces of a job's ranks, reads them in several processes, and writes the job's outputs."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.jobs.holistic import hta
    from tracekit.jobs.outputs import (
        TABLE,
        RankFiles,
        check_outputs,
        page_of,
        ranks,
        ranks_and_files,
        write_outputs,
        write_replayed,
    )
    from tracekit.jobs.rank_files import is_job, operations_file
else:
    __getattr__ = lazily(__name__, __file__)
