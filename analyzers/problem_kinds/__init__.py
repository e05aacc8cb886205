"""All kinds of problems, with code, severity, message and advice."""

from tracekit.analyzers.problem_kinds.analyzing import ANALYZING
from tracekit.analyzers.problem_kinds.problem import Problem
from tracekit.analyzers.problem_kinds.reading import READING

KINDS: dict[str, Problem] = {p.code: p for p in (*READING, *ANALYZING)}
