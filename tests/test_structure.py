"""The floors of the house: who may import whom."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tracekit"
FLOORS = ["analyzers", "reports", "tracekit"]


def modules(floor):
    """Files of a floor; those of the upper floor are not the ones of the two that are linked into its folder."""
    folder = PACKAGE if floor == "tracekit" else PACKAGE / floor
    return [path for path in sorted(folder.rglob("*.py")) if floor_of(path) == floor]


def floor_of(path):
    room = path.relative_to(PACKAGE).parts[0]
    return room if room in FLOORS else "tracekit"


MODULES = [path for floor in FLOORS for path in modules(floor)]


def imports(path):
    """(module, whether at the top level of the file)."""
    tree = ast.parse(path.read_text())
    top = set(map(id, tree.body))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", id(node) in top


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_floor_imports_only_from_below(path):
    floor = FLOORS.index(floor_of(path))
    for module, _ in imports(path):
        root, _, rest = module.partition(".")
        assert root not in ("analyzers", "reports"), f"{module} is installed as tracekit.{module}"
        below = rest.split(".")[0] if rest.split(".")[0] in FLOORS else root
        assert below not in FLOORS or FLOORS.index(below) <= floor, module
        assert floor == 2 or root not in ("torch", "transformers"), module


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_and_functions_stay_small(path):
    text = path.read_text()
    assert text.count("\n") <= 260
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 60, node.name


def modules_after(statement):
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_help_imports_nothing_heavy():
    loaded = modules_after(
        "from click.testing import CliRunner\nfrom tracekit.cli import main\nCliRunner().invoke(main, ['--help'])"
    )
    assert not loaded & {"torch", "numpy", "pandas", "plotly", "jinja2", "transformers", "rich"}


def test_reading_a_trace_loads_neither_pyarrow_nor_what_it_does_not_show():
    sample = ROOT / "examples" / "traces" / "h200_bert_prefill.json.gz"
    loaded = modules_after(
        "from click.testing import CliRunner\nfrom tracekit.cli import main\n"
        f"assert CliRunner().invoke(main, ['analyze', '--no-cache', {str(sample)!r}]).exit_code == 0"
    )
    assert {"pandas", "tracekit.reports.terminal"} <= loaded
    assert not loaded & {"pyarrow", "tracekit.reports.export", "tracekit.reports.markdown", "torch", "plotly"}


def test_analysis_never_imports_torch():
    loaded = modules_after(
        "import tracekit.answers.full_analysis, tracekit.planning.recommend\n"
        "from tracekit.reports import export, html, terminal"
    )
    assert "tracekit.analyzers.readers" in loaded
    assert not loaded & {"torch", "transformers", "nvtx"}
