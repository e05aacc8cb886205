"""Paths that cannot be read or written are explained in three sentences, with exit status 1."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tracekit.cli import main

SAMPLE = Path(__file__).parents[1] / "examples" / "traces" / "h200_gpt2_prefill.json.gz"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Return a folder with a text, a binary, an empty script, a folder, and one that only looks like a run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("a text")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "script.py").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "run.json").write_text("[]")
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "run.json").write_text('{"settings": {"model": "gpt2", "batch_size": "many"}}')
    return tmp_path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("verify nosuch", ("nosuch/run.json cannot be read.", "No such file", "tracekit profile")),
        ("verify text", ("text/run.json cannot be read.", "Not a directory", "tracekit profile")),
        ("verify folder", ("folder is a folder without a trace", "Name a trace file", "tracekit profile")),
        ("verify wrong", ("wrong/run.json cannot be read.", "batch_size", "Expected `int`, got `str`")),
        (
            "verify other",
            ("other/run.json cannot be read.", "It is damaged: Expected `object`, got `array`", "tracekit profile"),
        ),
        ("run nosuch.py", ("nosuch.py cannot be run.", "No such file", "Name a Python script.")),
        ("run folder", ("folder cannot be run.", "Is a directory", "Name a Python script.")),
        ("run -o text script.py", ("Cannot write text/trace.json.gz.", "is not a writable folder", "with -o")),
        ("profile --model gpt2 --gpu t4 -o text", ("Cannot write text/", "is not a writable folder", "with -o")),
        ("bench --model gpt2 --device cpu --eval nosuch", ("nosuch cannot be read", "No such file", "text file")),
        ("bench --model gpt2 --device cpu --eval folder", ("folder cannot be read", "Is a directory", "text file")),
        ("bench --model gpt2 --device cpu --eval script.py", ("cannot be read", "It is empty.", "text file")),
        ("bench --model gpt2 --device cpu --eval bytes", ("bytes cannot be read", "not in UTF-8", "text file")),
        (
            "bench --model gpt2 --device cpu -o text",
            ("Cannot write text/", "is not a writable folder", "with -o"),
        ),
        ("analyze nosuch", ("nosuch does not exist.", "No file or folder", "Check the path")),
        ("compare nosuch text", ("nosuch does not exist.", "No file or folder", "Check the path")),
        ("ranks nosuch", ("nosuch does not exist.", "No file or folder", "one trace per rank")),
        ("check nosuch --against none", ("There is no baseline 'none'", "tracekit check RUN --save none")),
        ("open nosuch", ("nosuch does not exist.", "Name a run's folder")),
    ],
)
def test_what_why_and_what_to_try(here, words, said):
    before = sorted(here.rglob("*"))
    done = CliRunner().invoke(main, words.split())
    assert done.exit_code == (2 if words.startswith("check ") else 1)
    assert all(part in done.stderr for part in said), done.stderr
    assert sorted(here.rglob("*")) == before


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("verb", ["analyze", "predict", "compare text", "run", "verify"])
def test_what_may_not_be_read(monkeypatch, verb):
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "text")

    monkeypatch.setattr(Path, "open", refused)
    done = CliRunner().invoke(main, [*verb.split(), "text"])
    assert done.exit_code == 1
    assert "Permission denied" in done.stderr and "bug" not in done.stderr


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("profile --model gpt2 --gpu t4 --batch-size 99999999999999999999", 2, "not in the range"),
        ("profile --model gpt2 --gpu t4 --batch-size -1", 2, "not in the range"),
        ("profile --model gpt2 --gpu t4 --steps 999999999", 2, "not in the range"),
        ("profile --model folder --gpu t4", 1, "contains no model"),
        ("profile --model text --gpu t4", 1, "No model is called"),
        ("profile --model gpt2 --gpu nosuch", 1, "nosuch"),
        ("analyze text --max-unpacked nan", 2, "nan"),
        ("analyze text --max-unpacked inf", 1, "text"),
        ("analyze text --max-unpacked 1e300", 1, "text"),
        ("bench --model , --device cpu", 2, "names with commas"),
        ("bench --model gpt2 --apply , --device cpu", 2, "names with commas"),
        ("bench --model gpt2 --batch-size -1 --device cpu", 2, "numbers with commas"),
        ("bench --model gpt2 --max-seconds 0 --device cpu", 2, "not in the range"),
    ],
)
def test_odd_values_are_no_bug(words, status, said):
    done = CliRunner().invoke(main, words.split())
    assert (done.exit_code, said in done.stderr) == (status, True), done.stderr
    assert "bug of tracekit" not in done.stderr


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("text", [b"print('\xe9')\n", b"print(1)\0\n", b"import nosuchmodule\n", b"1 +\n"])
def test_a_script_that_python_refuses_is_no_bug(text):
    Path("script.py").write_bytes(text)
    done = CliRunner().invoke(main, ["run", "script.py"])
    assert done.exit_code == 1 and "bug of tracekit" not in done.stderr
    assert "the script failed" in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
@pytest.mark.parametrize("verb", ["gpus", f"analyze --no-cache {SAMPLE}"])
def test_a_closed_standard_output_is_an_error(verb):
    """As in `tracekit gpus >&-`."""
    command = ["sh", "-c", f'"$0" -m tracekit {verb} >&-', sys.executable]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert answer.returncode == 1
    assert "Standard output is closed." in answer.stderr and "bug" not in answer.stderr
