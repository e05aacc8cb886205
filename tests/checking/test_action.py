"""The GitHub action: its shell steps run in a clean checkout, as a runner would run them."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import jsonschema
import pytest
import yaml
from click.testing import CliRunner
from tiny_runs import write_run

from tracekit.cli import main

ROOT = Path(__file__).parents[2]
ACTION = ROOT / ".github/actions/check/action.yml"
KEPT = (".github/", ".tracekit/", "tracekit/", "analyzers/", "reports/", "pyproject.toml")
GH = """#!/usr/bin/env bash
printf '%s\\n' "$*" >>"$GH_LOG"
[[ $* != *--paginate* ]] || printf '%s' "${GH_COMMENT:-}"
"""
(JOB,) = yaml.safe_load((ROOT / ".github/workflows/performance.yml").read_text())["jobs"].values()
(GATE,) = (each["with"] for each in JOB["steps"] if each.get("uses") == "./.github/actions/check")
ROWS = JOB["strategy"]["matrix"]["include"]
TEXT = {"type": "string", "minLength": 1}
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "description", "inputs", "outputs", "runs"],
    "properties": {
        "name": TEXT,
        "description": TEXT,
        "author": TEXT,
        "branding": {"type": "object", "required": ["icon", "color"]},
        "inputs": {
            "additionalProperties": {
                "required": ["description"],
                "additionalProperties": False,
                "properties": {"description": TEXT, "required": {"type": "boolean"}, "default": {"type": "string"}},
            }
        },
        "outputs": {"additionalProperties": {"required": ["description", "value"]}},
        "runs": {
            "required": ["using", "steps"],
            "properties": {
                "using": {"const": "composite"},
                "steps": {
                    "type": "array",
                    "items": {
                        "required": ["name", "shell", "run"],
                        "additionalProperties": False,
                        "properties": {
                            **dict.fromkeys(("name", "id", "if", "run"), TEXT),
                            "shell": {"const": "bash"},
                            "env": {"additionalProperties": {"type": "string"}},
                        },
                    },
                },
            },
        },
    },
}
"""What GitHub's documentation of composite actions demands, and nothing that it does not know."""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (ROOT / ".git").exists() or not shutil.which("bash"), reason="needs a checkout, and bash"),
]


@pytest.fixture(scope="module")
def action():
    return yaml.safe_load(ACTION.read_text())


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """Return a folder with the tracked files of this tree, compiled where they are, and programs as a runner has."""
    folder = tmp_path_factory.mktemp("checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    tracked = [name for name in listed.stdout.split("\0") if name.startswith(KEPT)]
    compiled = [cache_from_source(name) for name in tracked if name.endswith(".py")]
    for name in (*tracked, *compiled):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    programs = folder / ".programs"
    programs.mkdir()
    (programs / "python").symlink_to(sys.executable)
    (programs / "tracekit").write_text(f'#!/usr/bin/env bash\nexec "{sys.executable}" -m tracekit "$@"\n')
    (programs / "gh").write_text(GH)
    for program in ("tracekit", "gh"):
        (programs / program).chmod(0o755)
    return folder


@pytest.fixture
def step(action, checkout, tmp_path):
    """Runs a step by name with inputs, and returns its status, what it printed, and its outputs."""

    def run(name, inputs, **environment):
        (told,) = (each for each in action["runs"]["steps"] if each["name"] == name)
        given = {key: each.get("default", "") for key, each in action["inputs"].items()} | inputs
        env = {key: _filled(str(value), given) for key, value in told["env"].items()}
        files = {key: tmp_path / key for key in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GH_LOG")}
        for file in files.values():
            file.write_text("")
        paths = {"PATH": f"{checkout}/.programs:{os.environ['PATH']}", "PYTHONPATH": str(checkout)}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", told["run"]],
            cwd=checkout,
            env={**os.environ, **paths, **env, **{key: str(file) for key, file in files.items()}, **environment},
            capture_output=True,
            text=True,
        )
        return done, {key: file.read_text() for key, file in files.items()}

    return run


def _filled(value, inputs):
    """Replace a value's expressions as a runner would."""
    value = re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda match: inputs[match[1]], value)
    return re.sub(r"\$\{\{ github\.event\.pull_request\.number \}\}", "7", value)


def test_a_regression_fails_and_is_commented_once(step, checkout):
    for number in range(3):
        write_run(checkout / f"base-{number}.json")
    write_run(checkout / "more.json", scalar_read=True)
    inputs = {"runs": "more.json\n", "against": "base-0.json\nbase-1.json\nbase-2.json\n"}
    failed, files = step("Check", inputs)
    assert failed.returncode == 1
    assert "outcome=regressed" in files["GITHUB_OUTPUT"]
    assert "::error title=tracekit check%3A counter scalar-reads::scalar-reads 0 → 1" in failed.stdout
    for name in ("check.md", "check.json", "check.sarif", "check.xml"):
        assert (checkout / "tracekit-check" / name).stat().st_size
    runner = {"GITHUB_REPOSITORY": "someone/something"}
    first, files = step("Comment on the pull request", inputs, **runner)
    assert first.returncode == 0
    assert "--method POST repos/someone/something/issues/7/comments" in files["GH_LOG"]
    again, files = step("Comment on the pull request", inputs, GH_COMMENT="123\n", **runner)
    assert again.returncode == 0
    assert "--method PATCH repos/someone/something/issues/comments/123" in files["GH_LOG"]


def test_inconclusive_and_impossible_checks(step, checkout):
    write_run(checkout / "one.json")
    inputs = {"runs": "one.json", "against": "one.json"}
    passed, files = step("Check", inputs)
    assert passed.returncode == 0
    assert "outcome=inconclusive" in files["GITHUB_OUTPUT"]
    assert step("Check", inputs | {"fail-on-inconclusive": "true"})[0].returncode == 3
    missing, _ = step("Check", {"runs": "one.json", "against": "no such baseline; echo injected"})
    assert missing.returncode == 2
    assert "The check could not be made" in missing.stdout
    assert "\ninjected" not in missing.stdout


def test_the_first_step_installs_nothing_where_tracekit_is_there(step):
    done, _ = step("Install tracekit", {"install": ""})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("tracekit")


def test_the_first_step_installs_the_commit_that_the_action_is_of(step, checkout, tmp_path):
    pip = tmp_path / "python"
    pip.write_text('#!/usr/bin/env bash\nprintf "%s\\n" "$@" >>"$GH_LOG"\n')
    pip.chmod(0o755)
    places = {"PATH": f"{tmp_path}:{checkout}/.programs:{os.environ['PATH']}"}
    places["GITHUB_ACTION_PATH"] = str(checkout / ".github/actions/check")
    done, files = step("Install tracekit", {}, **places)
    assert done.returncode == 0, done.stderr
    source = files["GH_LOG"].splitlines()[-1]
    assert source == f"{checkout}[capture]" and (checkout / "pyproject.toml").exists()


def test_a_command_that_fails_fails_the_step(step):
    done, _ = step("Make the runs", {"command": "false | true\necho later"})
    assert done.returncode != 0
    assert "later" not in done.stdout


def test_the_action_is_a_composite_one(action):
    jsonschema.validate(action, SCHEMA)
    texts = [str(each) for each in (action["outputs"], *action["runs"]["steps"])]
    named = {name for text in texts for name in re.findall(r"\$\{\{ inputs\.([\w-]+)", text)}
    named |= {name for text in texts for name in re.findall(r"inputs\.([\w-]+) ==", text)}
    assert named == set(action["inputs"])
    steps = {each["id"] for each in action["runs"]["steps"] if "id" in each}
    assert set(re.findall(r"steps\.(\w+)\.outputs", str(action["outputs"]))) <= steps
    for each in action["runs"]["steps"]:
        checked = subprocess.run(["bash", "-n", "-c", each["run"]], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr


def test_inputs_reach_the_shell_as_variables_only(action):
    for each in action["runs"]["steps"]:
        assert "${{" not in each["run"], each["name"]


def test_the_repository_uses_the_action_with_its_inputs_and_has_the_baselines(action):
    assert set(GATE) <= set(action["inputs"])
    for row in ROWS:
        assert (ROOT / f".tracekit/baselines/{row['name']}.json").is_file()
        assert (ROOT / f"tracekit/capture/architectures/{row['model']}.json").is_file()


def gate(row):
    """Return what the workflow tells the action of a row of its matrix."""
    return {
        key: re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda match: row[match[1]], value) for key, value in GATE.items()
    }


def test_the_gate_of_the_repository_passes(step):
    """If a change on purpose fails it, save the baselines anew, as the workflow's first lines say."""
    values = gate(ROWS[0])
    made, _ = step("Make the runs", {"command": values["command"]})
    assert made.returncode == 0, made.stderr
    checked, files = step("Check", {name: values[name] for name in ("runs", "against")})
    assert "outcome=pass" in files["GITHUB_OUTPUT"], checked.stdout + checked.stderr
    assert checked.returncode == 0
    assert files["GITHUB_STEP_SUMMARY"].startswith(f"<!-- tracekit check {values['against']} -->")
    assert checked.stdout.startswith("::notice title=tracekit check")


@pytest.mark.parametrize("row", ROWS[1:], ids=[row["name"] for row in ROWS[1:]])
def test_its_other_rows_pass_in_this_process(checkout, monkeypatch, row):
    monkeypatch.chdir(checkout)
    values = gate(row)
    for program, *words in map(shlex.split, values["command"].splitlines()):
        assert program == "tracekit"
        assert CliRunner().invoke(main, words).exit_code == 0
    checked = CliRunner().invoke(main, ["check", values["runs"], "--against", values["against"]])
    assert checked.exit_code == 0, checked.output
