"""Write columns.md, optimizations.md, and tables of other pages: `python docs/generate.py`.

A test fails when they are stale.
"""

import sys
from importlib import import_module
from pathlib import Path
from runpy import run_path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
_ROUNDS = 3
"""Blind rounds that the README shows."""

_DECLARING = (
    "trace.trace",
    "trace.ncu.reader",
    "results.tables",
    "compare.comparison",
    "predict.op_columns",
    "ranks.tables",
    "serving.metrics",
)


def columns() -> str:
    """Every table and column, from their declarations."""
    modules = [import_module(f"tracekit.analyzers.{name}") for name in _DECLARING]
    table = import_module("tracekit.analyzers.core.schema").Table
    tables = {each.name: each for module in modules for each in vars(module).values() if isinstance(each, table)}
    head = "# Columns\n\nGenerated from the declarations in `analyzers/`. JSON output gives times in µs."
    return "\n\n".join([head, *(_table(table) for table in tables.values())]) + "\n"


def _table(table) -> str:
    rows = [f"| `{c.name}` | {c.dtype} | {c.unit} | {c.meaning.replace('|', '/')} |" for c in table.columns]
    return "\n".join(
        [f"## {table.name}\n\n{table.meaning}\n", "| column | type | unit | meaning |", "|---|---|---|---|", *rows]
    )


def optimizations() -> str:
    """A section for each optimization, from its class."""
    page = run_path(str(HERE / "optimizations_page.py"))["page"]
    return page(import_module("tracekit.advise.catalogue").KNOWN)


def ops() -> str:
    """The page on plug-ins, with the table of formulas that rows may name."""
    costs = import_module("tracekit.analyzers.cost.ops.costs")
    rows = [_formula(name, known, costs.parameters(name)) for name, known in sorted(costs.ROW_FORMULAS.items())]
    return _filled(HERE / "plugins.md", "formulas", "\n".join(["| formula | what it counts |", "|---|---|", *rows]))


def _formula(name: str, known, inputs) -> str:
    named = ", ".join(each if one.default is one.empty else f"[{each}]" for each, one in inputs.items())
    meaning = " ".join((known.__doc__ or "").split()).replace("|", "/")
    return f"| `{name}{f'({named})' if named else ''}` | {meaning} |"


def fusion() -> str:
    """The page on fused kernels, with its table of tiles and that of int4 layers."""
    page = _filled(HERE / "fusion.md", "tiles", run_path(str(HERE / "fusion_tiles.py"))["table"]())
    return _between(page, "int4 decode", import_module("benchmarks.results.page").int4_decode())


def readme() -> str:
    """The README, with the errors of the last blind rounds."""
    return _filled(HERE.parent / "README.md", "blind rounds", import_module("benchmarks.blind.score").brief(_ROUNDS))


def diagnosis() -> str:
    """The page on diagnosis, with its tables of slow scripts."""
    scripts = import_module("benchmarks.slow_scripts.command")
    page = HERE / "diagnosis.md"
    return _between(_filled(page, "slow scripts", scripts.summary()), "missed", scripts.misses())


def _filled(page: Path, name: str, table: str) -> str:
    """Return a page with a table between the comments `name` and `end of name`."""
    return _between(page.read_text(encoding="utf-8"), name, table)


def _between(text: str, name: str, table: str) -> str:
    begin, end = text.index(f"<!-- {name} -->") + len(f"<!-- {name} -->"), text.index(f"<!-- end of {name} -->")
    return f"{text[:begin]}\n\n{table.rstrip()}\n\n{text[end:]}"


if __name__ == "__main__":
    (HERE.parent / "README.md").write_text(readme(), encoding="utf-8")
    (HERE / "diagnosis.md").write_text(diagnosis(), encoding="utf-8")
    (HERE / "plugins.md").write_text(ops(), encoding="utf-8")
    (HERE / "fusion.md").write_text(fusion(), encoding="utf-8")
    (HERE / "optimizations.md").write_text(optimizations(), encoding="utf-8")
    (HERE / "columns.md").write_text(columns(), encoding="utf-8")
