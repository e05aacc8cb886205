"""The documentation matches the code."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(scope="module")
def generate():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_columns_is_fresh(generate):
    assert (ROOT / "docs/columns.md").read_text() == generate.columns(), "run python docs/generate.py"


def test_the_table_of_the_readme_is_fresh(generate):
    assert (ROOT / "README.md").read_text() == generate.readme(), "run python docs/generate.py"


def test_the_tables_of_diagnosis_are_fresh(generate):
    assert (ROOT / "docs/diagnosis.md").read_text() == generate.diagnosis(), "run python docs/generate.py"


def test_the_page_of_optimizations_is_fresh(generate):
    assert (ROOT / "docs/optimizations.md").read_text() == generate.optimizations(), "run python docs/generate.py"


def test_the_table_of_formulas_is_fresh(generate):
    assert (ROOT / "docs/plugins.md").read_text() == generate.ops(), "run python docs/generate.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_the_docs_exist_with_their_options(page):
    from tracekit.cli import main

    for line in re.findall(r"(?:\$ |&& \.venv/bin/)(tracekit .*)", page.read_text()):
        words = line.split("#")[0].split()
        command = main.get_command(None, words[1])
        assert command, line
        command = getattr(command, "commands", {}).get(words[2], command) if len(words) > 2 else command
        known = {option for parameter in command.params for option in parameter.opts}
        if words[1] != "run":
            assert {word for word in words if word.startswith("-")} <= known, line


def test_the_page_of_security_names_tests_that_exist():
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (ROOT / "docs/security.md").read_text())
    assert len(named) > 15
    for path, test in named:
        assert f"def {test or 'test_'}" in (ROOT / path).read_text(), (path, test)


def test_every_dependency_is_explained():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = project["dependencies"] + project["optional-dependencies"]["capture"]
    page = (ROOT / "docs/dependencies.md").read_text()
    for requirement in named:
        name = re.match(r"[\w-]+", requirement)[0]
        assert re.search(rf"^\| .*\b{name}\b", page, re.M), name
