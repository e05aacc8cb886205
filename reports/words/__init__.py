"""What all reports share: names, numbers and sentences, escaping of untrusted text, files that are written whole, and
the parts of a page.
"""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.reports.words import numbers, wording
    from tracekit.reports.words.data import (
        count,
        csv_cell,
        csv_table,
        escaped_json,
        fields,
        from_csv_cell,
        json_text,
        mean_step,
        number,
        over_steps,
        plain_rows,
        printable_lines,
        public,
        public_frame,
        records,
        schema,
    )
    from tracekit.reports.words.files import (
        check_not_input,
        check_page,
        check_text,
        check_trace,
        check_writable,
        is_same_file,
        mark_of,
        write_atomically,
        write_text,
        written,
    )
    from tracekit.reports.words.names import (
        ARROW,
        TABLES,
        device,
        in_sentence,
        inside,
        lower_first,
        middle_truncated,
        model,
        printable,
        shell_word,
        shortened,
        with_article,
    )
    from tracekit.reports.words.numbers import (
        ABSENT,
        BETWEEN,
        FIRST,
        changed,
        duration,
        measured,
        percent,
        quantity,
        rows_of,
        significant,
        speedup,
        times,
        token_times,
        tokens_per_s,
    )
    from tracekit.reports.words.views import (
        ROW_LIMIT,
        Kind,
        TableView,
        grouped,
        in_tree_order,
        layer_patterns,
        table_view,
        unnumbered,
    )
    from tracekit.reports.words.wording import (
        abstention,
        explained,
        helpless,
        lacking,
        lines,
        pieces,
        sentence,
        sentences,
        why,
    )
else:
    __getattr__ = lazily(__name__, __file__)
