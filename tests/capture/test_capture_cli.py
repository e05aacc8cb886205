"""The command line itself: fast, and its errors are explained."""

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import tracekit
from tracekit.analyzers.core import TracekitError
from tracekit.cli import Verbs

HEAVY = ("torch", "transformers", "pandas", "numpy", "plotly", "rich", "jinja2", "msgspec")


@pytest.mark.parametrize(
    "code", ["import tracekit", "from tracekit.cli import main; main(['--help'], standalone_mode=False)"]
)
def test_nothing_heavy_is_imported(code):
    check = f"{code}; import sys; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_lists_every_verb():
    done = subprocess.run([sys.executable, "-m", "tracekit", "--help"], capture_output=True, text=True, check=True)
    listed = [line.split()[0] for line in done.stdout.partition("Commands:")[2].splitlines() if line.strip()]
    verbs = sorted(path.stem.replace("_", "-") for path in (Path(tracekit.__file__).parent / "cli").glob("[a-z]*.py"))
    assert listed == verbs
    assert "..." not in done.stdout.partition("Commands:")[2]
    assert {"analyze", "gpus", "profile", "run"} <= set(verbs)


def test_public_names_resolve():
    for name in tracekit.__all__:
        assert callable(getattr(tracekit, name)), name
    with pytest.raises(AttributeError, match="nonsense"):
        tracekit.nonsense  # noqa: B018


def group(error):
    """A command line whose one verb raises the error."""

    class Raising(Verbs):
        def list_commands(self, _):
            return ["go"]

        def get_command(self, *_):
            @click.command("go")
            def go():
                raise error

            return go

    return Raising("tracekit", params=[click.Option(["-v", "--verbose"], is_flag=True)])


def test_an_expected_error_says_what_why_and_what_to_try():
    done = CliRunner().invoke(group(TracekitError("It broke.", "It was old.", "Buy one.")), ["go"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.split("\n") == ["error: It broke.", "       It was old.", "       Buy one.", ""]


def test_an_unexpected_error_is_called_a_bug():
    done = CliRunner().invoke(group(ZeroDivisionError("oops")), ["go"])
    assert done.exit_code == 1
    assert "ZeroDivisionError: oops" in done.stderr
    assert "bug" in done.stderr
    assert "-v" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("error", [TracekitError("It broke."), ZeroDivisionError("oops"), OSError(28, "No space left")])
def test_verbose_shows_the_traceback(error):
    done = CliRunner().invoke(group(error), ["-v", "go"])
    assert done.exit_code == 1
    assert "Traceback" in done.stderr


def test_usage_errors_exit_2():
    from tracekit.cli import main

    assert CliRunner().invoke(main, ["profile"]).exit_code == 2
    assert CliRunner().invoke(main, ["nonsense"]).exit_code == 2
    assert CliRunner().invoke(main, ["profile", "--model", "gpt2", "--batch-size", "0"]).exit_code == 2


def test_a_reader_that_leaves_early_is_no_error():
    command = f"{sys.executable} -m tracekit gpus --format json | head -c 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
    assert done.stderr == ""
