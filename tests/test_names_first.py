"""Names that do not exist are refused before torch is imported, with the nearest ones."""

import json
import subprocess
import sys

PROGRAM = """
import json, sys
from click.testing import CliRunner
from tracekit.cli import main
told = []
for words in json.load(sys.stdin):
    result = CliRunner().invoke(main, words)
    told.append((words, result.exit_code, result.stderr, "torch" in sys.modules))
json.dump(told, sys.stdout)
"""
WRONG = [
    ("profile --model gpt2 --gpu h1000", "h100"),
    ("profile --model gpt22 --gpu h100", "gpt2"),
    ("run --gpu h1000 mine.py", "h100"),
    ("run gone.py", "Name a Python script."),
    ("bench --model gpt2 --gpu h1000", "h100"),
    ("bench --model gpt22 --gpu t4", "gpt2"),
    ("bench --model gpt22", "gpt2"),
    ("bench --model gpt2 --apply nf44", "nf4"),
    ("bench --model gpt2 --apply nf44 --gpu t4", "nf4"),
    ("bench --model gpt2 --apply qat:int44", "qat:int4"),
    ("quantize --model gpt22 --to int4 -o x.safetensors", "gpt2"),
    ("quantize --model gpt2 --to int44 -o x.safetensors", "int4"),
    ("serve-plan --requests poisson:8,512,128 --model gpt2 --gpu h1000", "h100"),
    ("serve-plan --requests poisson:8,512,128 --model gpt22 --gpu h100", "gpt2"),
    ("predict gone --apply graps", "cuda-graphs"),
    ("profil --model gpt2", "profile"),
]


def test_names_are_checked_before_torch_is_imported(tmp_path):
    (tmp_path / "mine.py").write_text("")
    words = json.dumps([line.split() for line, _ in WRONG])
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=words, capture_output=True, text=True, cwd=tmp_path, check=True
    )
    for (line, nearest), (_, status, said, imported) in zip(WRONG, json.loads(told.stdout), strict=True):
        assert (status != 0, nearest in said, imported) == (True, True, False), (line, said)
