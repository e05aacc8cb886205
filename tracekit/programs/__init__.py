"""tracekit for other programs: tools of the Model Context Protocol, and a skill file for coding agents."""
