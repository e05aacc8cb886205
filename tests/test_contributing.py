"""Follows the additions in CONTRIBUTING.md literally, in a copy of the checkout."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SECTIONS = re.split(r"^## ", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), flags=re.M)[1:]
COPIED = ("README.md", "analyzers", "reports", "tracekit", "docs", "tests", "benchmarks", "pyproject.toml")


@dataclass(frozen=True)
class Block:
    """A fenced block. `place` names its file, and says whether it is appended or is the whole file."""

    place: str
    language: str
    text: str

    def write(self, checkout: Path) -> None:
        name, at_the_end = re.match(r"`([^`]+)`(, at the end)?", self.place).groups()
        path = checkout / name
        if self.language == "diff":
            path.write_text(patched(path.read_text("utf-8"), self.text), "utf-8")
        elif at_the_end:
            path.write_text(path.read_text("utf-8") + "\n\n" + self.text, "utf-8")
        else:
            assert not path.exists(), f"{name} exists already"
            path.write_text(self.text, "utf-8")

    def commands(self) -> list[tuple[str, list[str]]]:
        """Return each command, and the lines that its output must hold."""
        runs = [part.splitlines() for part in re.split(r"^\$ ", self.text, flags=re.M)[1:]]
        return [(command, expected) for command, *expected in runs]


def patched(text: str, diff: str) -> str:
    """Apply the hunks of a diff to a text. Each must fit in exactly one place."""
    for hunk in diff.split("@@\n"):
        lines = hunk.splitlines()
        before = "".join(f"{line[1:]}\n" for line in lines if line[0] != "+")
        after = "".join(f"{line[1:]}\n" for line in lines if line[0] != "-")
        assert f"\n{text}".count(f"\n{before}") == 1, f"{before} is not in one place"
        text = text.replace(before, after)
    return text


def blocks(section: str) -> list[Block]:
    fences = re.finditer(r"(?:^(`[^\n]+):\n\n)?^```(\w+)\n(.*?)^```$", section, flags=re.M | re.S)
    return [Block(place or "", language, text) for place, language, text in (fence.groups() for fence in fences)]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the checkout, and of what is compiled of it, with all additions. Examples are linked."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, symlinks=True)
        else:
            shutil.copy(ROOT / name, copy)
    (copy / "examples").symlink_to(ROOT / "examples")
    for section in SECTIONS:
        for block in blocks(section):
            if block.language != "console":
                block.write(copy)
    return copy


def output(command: str, checkout: Path) -> str:
    """Run a command in the checkout with its package, and return what it prints."""
    program, *arguments = shlex.split(command)
    modules = {"tracekit": ["-m", "tracekit"], "pytest": ["-m", "pytest"], "python": []}
    start = [sys.executable, *modules[program]] if program in modules else [program]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment = {**inherited, "PYTHONPATH": str(checkout), "COLUMNS": "120"}
    done = subprocess.run([*start, *arguments], cwd=checkout, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.partition("\n")[0])
def test_an_addition_does_what_the_page_promises(section: str, checkout: Path) -> None:
    runs = [run for block in blocks(section) if block.language == "console" for run in block.commands()]
    assert runs
    for command, expected in runs:
        printed = output(command, checkout)
        for line in expected:
            assert line in printed, f"{command}: {printed}"


@pytest.mark.parametrize("language", ["python", "toml", "diff"])
def test_every_block_has_a_place(language: str) -> None:
    additions = [block for section in SECTIONS for block in blocks(section) if block.language == language]
    assert additions and all(block.place for block in additions)


def test_additions_are_clean(checkout: Path) -> None:
    named = [re.match("`([^`]+)`", block.place) for section in SECTIONS for block in blocks(section)]
    files = sorted({place[1] for place in named if place and place[1].endswith(".py")})
    for check in (["check"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *check, *files]
        done = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
