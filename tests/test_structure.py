"""The floors of the code import only from below, and files stay small."""

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tracekit"
FLOORS = ["analyzers", "reports", "tracekit"]


def modules(floor):
    """Return the files of a floor. Those of the two lower floors, linked into the upper one, are not its own."""
    folder = PACKAGE if floor == "tracekit" else PACKAGE / floor
    return [path for path in sorted(folder.rglob("*.py")) if floor_of(path) == floor]


@cache
def tree_of(path):
    return ast.parse(path.read_text())


@cache
def nodes_of(path):
    return list(ast.walk(tree_of(path)))


def floor_of(path):
    room = path.relative_to(PACKAGE).parts[0]
    return room if room in FLOORS else "tracekit"


@pytest.fixture(scope="module", params=FLOORS)
def floor(request):
    """Return a floor's number, and the syntax tree of each of its files."""
    trees = {str(path.relative_to(PACKAGE)): tree_of(path) for path in modules(request.param)}
    assert len(trees) > 20
    return FLOORS.index(request.param), trees


def imported(tree):
    """Yield the names of the modules that a file imports, at its top level or in a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def is_from_above(module, floor):
    root, _, rest = module.partition(".")
    below = rest.split(".")[0] if rest.split(".")[0] in FLOORS else root
    return below in FLOORS and FLOORS.index(below) > floor


def test_a_floor_imports_only_from_below(floor):
    number, trees = floor
    imports = {(name, module) for name, tree in trees.items() for module in imported(tree)}
    assert not {each for each in imports if is_from_above(each[1], number)}
    roots = {(name, module.partition(".")[0]) for name, module in imports}
    not_installed = {"analyzers", "reports"}  # only tracekit.analyzers and tracekit.reports are
    assert not {each for each in roots if each[1] in not_installed}
    assert number == 2 or not {each for each in roots if each[1] in ("torch", "transformers")}


def test_files_and_functions_stay_small(floor):
    _, trees = floor
    lines = {name: (PACKAGE / name).read_text().count("\n") for name in trees}
    assert not {name: count for name, count in lines.items() if count > 280}
    functions = [(name, each) for name, tree in trees.items() for each in ast.walk(tree) if _is_function(each)]
    assert not [(name, each.name) for name, each in functions if each.end_lineno - each.lineno >= 60]


def _is_function(node):
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))


def room_of(module):
    """Return the folder that is the room of a module: one below its floor, such as tracekit.analyzers.trace."""
    parts = module.split(".")
    depth = 3 if len(parts) > 1 and parts[1] in FLOORS[:2] else 2
    room = parts[:depth]
    return ".".join(room) if len(parts) >= depth and ROOT.joinpath(*room).is_dir() else ""


def module_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports_between_rooms():
    """Yield (importing module, its room, imported module, imported name, its room) of each import from another room."""
    for floor in FLOORS:
        for path in modules(floor):
            module = module_of(path)
            for node in nodes_of(path):
                if isinstance(node, ast.ImportFrom) and room_of(node.module or "") not in ("", room_of(module)):
                    yield from ((module, room_of(module), node.module, each.name) for each in node.names)


@cache
def exported(room):
    """Return the names that a room's face lists for type checkers and readers, or defines."""
    tree = tree_of(ROOT.joinpath(*room.split("."), "__init__.py"))
    listed = [each for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for each in node.names]
    return {each.asname or each.name for each in listed} | {node.name for node in tree.body if _is_function(node)}


def test_rooms_are_entered_by_their_faces():
    entered = list(imports_between_rooms())
    assert len(entered) > 1000
    api = {"tracekit", "tracekit.analyzers"}  # the public names say where they are
    past = [(who, where) for who, _, where, _ in entered if where != room_of(where) and who not in api]
    assert not past
    others = [each for each in entered if each[0] not in api]
    assert not [(who, where, name) for who, _, where, name in others if name not in exported(room_of(where))]


def test_rooms_form_a_graph_without_cycles():
    below = {}
    for _, room, where, _ in imports_between_rooms():
        if room:
            below.setdefault(room, set()).add(room_of(where))
    TopologicalSorter(below).prepare()  # raises CycleError
    assert len(below) > 25


def test_files_import_each_other_in_no_circle():
    """Imports for type checkers and those inside functions count, too. Faces import what is below them lazily."""
    paths = {module_of(path): path for floor in FLOORS for path in modules(floor) if path.name != "__init__.py"}
    below = {module: set() for module in paths}
    for module, path in paths.items():
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom):
                named = {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
                below[module] |= named & paths.keys() - {module}
    TopologicalSorter(below).prepare()  # raises CycleError
    assert len(below) > 350


def test_rooms_say_what_they_are_for():
    faces = [path for floor in FLOORS for path in modules(floor) if path.name == "__init__.py"]
    rooms = [path for path in faces if len(path.relative_to(PACKAGE).parts) == 2 + (floor_of(path) != "tracekit")]
    assert len(rooms) > 35
    assert not [path for path in rooms if len(ast.get_docstring(tree_of(path)) or "") < 40]


def test_scripts_import_names_that_exist():
    scripts = [path for folder in ("benchmarks", "examples", "docs") for path in (ROOT / folder).rglob("*.py")]
    assert len(scripts) > 50
    names = {(path, *each) for path in scripts for each in _imported_names(ast.parse(path.read_text()))}
    assert not {(str(path), module, name) for path, module, name in names if not _exists(module, name)}


def _imported_names(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "tracekit":
            yield from ((node.module, alias.name) for alias in node.names)


def _exists(module, name):
    path = ROOT.joinpath(*module.split("."))
    if (path / name).is_dir() or (path / f"{name}.py").exists():
        return True
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return file.exists() and re.search(rf"\b{name}\b", file.read_text()) is not None


def modules_after(statement):
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_help_imports_nothing_heavy():
    loaded = modules_after(
        "from click.testing import CliRunner\nfrom tracekit.cli import main\nCliRunner().invoke(main, ['--help'])"
    )
    assert not loaded & {"torch", "numpy", "pandas", "plotly", "jinja2", "transformers", "rich", "http.server", "ssl"}
    rooms = ("attribute", "cost", "predict", "results", "trace.trace")
    assert not loaded & {f"tracekit.analyzers.{room}" for room in rooms}


def test_reading_a_trace_loads_neither_pyarrow_nor_what_it_does_not_show():
    sample = ROOT / "examples" / "traces" / "h200_bert_prefill.json.gz"
    loaded = modules_after(
        "from click.testing import CliRunner\nfrom tracekit.cli import main\n"
        f"assert CliRunner().invoke(main, ['analyze', '--no-cache', {str(sample)!r}]).exit_code == 0"
    )
    assert {"pandas", "tracekit.reports.document.terminal"} <= loaded
    assert not loaded & {
        "pyarrow",
        "tracekit.reports.answer.export",
        "tracekit.reports.document.markdown",
        "torch",
        "plotly",
    }


def test_analysis_never_imports_torch():
    loaded = modules_after(
        "import tracekit.answer.from_trace, tracekit.advise.recommending\n"
        "from tracekit.reports.answer import document, export, html"
    )
    assert "tracekit.analyzers.predict.oplist" in loaded
    assert not loaded & {"torch", "transformers", "nvtx"}
