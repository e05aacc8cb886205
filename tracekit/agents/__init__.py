"""tracekit for other programs: tools of the Model Context Protocol, and a skill file for coding agents."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.agents.mcp_server import install, server, text
    from tracekit.agents.tools import Roots, Tools
else:
    __getattr__ = lazily(__name__, __file__)
