"""One record of what an answer says, and its writers: terminal, page, Markdown, notebook."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.reports.document.blocks import (
        Block,
        Cell,
        Code,
        Document,
        Drawn,
        Facts,
        Listing,
        Name,
        Row,
        Section,
        Shares,
        Table,
        Text,
        problems,
        row_names,
    )
    from tracekit.reports.document.pages import packed_json, packed_plotly, page, plotly_source
else:
    __getattr__ = lazily(__name__, __file__)


def render(
    document: "Document", form: str, *, mark: str = "", width: int | None = None, colour: bool | None = None
) -> str:
    """Return the document as "text", "markdown", "notebook" or "html".

    `mark` identifies the input in a page. A text has `width` columns, by default the terminal's, and colours if
    `colour`, by default in a terminal that has them.
    """
    if form == "html":
        from tracekit.reports.document.pages import document_page

        return document_page(document, mark)
    if form == "notebook":
        from tracekit.reports.document.notebook import notebook

        return notebook(document)
    if form == "markdown":
        from tracekit.reports.document.markdown import markdown

        return markdown(document)
    from tracekit.reports.document.terminal import terminal

    return terminal(document, width=width, colour=colour)
