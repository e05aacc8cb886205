"""Saves baselines by name, and judges runs against them."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.check.baseline_file import names_in
    from tracekit.check.checking import Options, check, folder_of
    from tracekit.check.false_alarms import described, self_test
    from tracekit.check.options import Configuration, Files, configuration
    from tracekit.check.saving import check_recordable, listed, read_history, record_check, save, shown
else:
    __getattr__ = lazily(__name__, __file__)
