"""What tracekit was measured by, and what was measured: `python -m benchmarks` lists the experiments."""

from collections.abc import Iterable, Sequence


def percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], numbers: int) -> str:
    """Return a Markdown table whose last `numbers` columns are right-aligned."""
    rule = ["---"] * (len(head) - numbers) + ["---:"] * numbers
    lines = [head, rule, *[[str(cell) for cell in row] for row in rows]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
