"""benchmarks is one package with one command, and small."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import experiments

ROOT = Path(__file__).parents[1]


def test_the_package_stays_small():
    listed = subprocess.run(["git", "ls-files", "-z", "benchmarks"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a checkout")
    files = [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]
    assert len(files) <= 100
    assert sum(file.stat().st_size for file in files) <= 12_000_000


def test_each_program_is_listed_with_a_line():
    known = experiments()
    assert {"accuracy.page", "blind.measure", "fitting.gemm", "slow_scripts", "smoke"} <= set(known)
    assert [name for name, says in known.items() if not 10 < len(says) < 160] == []


@pytest.mark.parametrize(
    ("name", "status", "says"), [("slow_scripts", 0, "| **all sets** | 1075 |"), ("x", 1, "no experiment x")]
)
def test_the_command_runs_one_by_its_name(name, status, says):
    ran = subprocess.run([sys.executable, "-m", "benchmarks", name], cwd=ROOT, capture_output=True, text=True)
    assert (ran.returncode, says in ran.stdout + ran.stderr) == (status, True)
