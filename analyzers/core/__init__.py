"""What every room speaks: errors for users, tables with documented columns, intervals, limits on what is read,
progress, further processes, and the faces of rooms.
"""

from typing import TYPE_CHECKING

from tracekit.analyzers.core.faces import lazily

if TYPE_CHECKING:
    from tracekit.analyzers.core import limits
    from tracekit.analyzers.core.errors import (
        InputError,
        MissingPackageError,
        TracekitError,
        UnknownNameError,
        installing,
        reading,
    )
    from tracekit.analyzers.core.faces import lazily
    from tracekit.analyzers.core.limits import (
        LARGEST,
        MOST_ELEMENTS,
        OBJECTS,
        UNPACKED,
        Amount,
        Count,
        Int32,
        Int64,
        Number,
        PositiveAmount,
        decoded,
    )
    from tracekit.analyzers.core.network import GPUS_OF_A_HOST, Link
    from tracekit.analyzers.core.plugins import added, additions, left_out, plugged
    from tracekit.analyzers.core.processes import (
        answer_messages,
        cores,
        counted,
        progressed,
        receive,
        send,
        started_process,
        watching,
    )
    from tracekit.analyzers.core.schema import TABLES, Bools, Column, Floats, Ints, Table, tables
    from tracekit.analyzers.core.values import (
        Bundle,
        Displayed,
        Interval,
        Outcomes,
        Renderers,
        digamma,
        facts,
        intervals,
        numbers,
        outcomes,
        t_quantile,
        toml_table,
        trigamma,
        trigamma_inverse,
        version,
    )
else:
    __getattr__ = lazily(__name__, __file__)
