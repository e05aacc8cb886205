"""benchmarks/cases: the catalogue, its README, and some of the scripts at tiny size on a CPU."""

import gzip
import json
import runpy
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from catalogue import SETS, cases, table
from diagnose import BLIND, SEEN, _is_right, diagnosis, page, summary

import tracekit
from tracekit.reports.export import schema, to_json
from tracekit.reports.headline import headline

CASES = Path(__file__).parents[1] / "benchmarks" / "cases"


@pytest.mark.parametrize("number", SETS)
def test_each_case_has_a_script_and_each_script_a_case(number):
    scripts = {path.stem for path in (CASES / SETS[number][1]).glob("*.py")} - {"models", "__init__"}
    assert scripts == {case.script for case in cases(number).values()}


def test_no_case_is_in_two_sets():
    names = [name for number in SETS for name in cases(number)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("number", "mark"),
    [
        (1, "table"),
        (2, "second"),
        (3, "third"),
        (4, "fourth"),
        (5, "fifth"),
        (6, "sixth"),
        (7, "seventh"),
        (8, "eighth"),
        (9, "ninth"),
    ],
)
def test_the_readme_shows_the_catalogue(number, mark):
    readme = (CASES / "README.md").read_text()
    assert _between(readme, mark) == table(number)


def test_a_run_that_does_not_fit_is_right_only_if_that_is_said_of_each_gpu():
    def right(case, gpus, *advice):
        return _is_right({"advice": [{"id": each} for each in advice], "does_not_fit": gpus}, case)

    loaded, trained = cases(2)["loaded-in-float32"], cases(4)["large-pictures"]
    assert right(loaded, ["t4", "l4"], "half-precision")
    assert not right(loaded, ["t4"], "half-precision")
    assert not right(loaded, ["t4", "l4"], "compile")
    assert not right(loaded, ["t4", "l4"])
    assert right(trained, ["t4", "l4"])
    assert not right(trained, ["t4"])


def test_a_case_that_was_not_recorded_keeps_its_row(tmp_path):
    gain = {"gain": {"median": 2.5}}
    advised = {"bound": "launch", "advice": [{"id": "data-loading", "low": 2, "expected": 3, "high": 4}]}
    (tmp_path / "measured.json").write_text(json.dumps({"cases": {"click-log-loader": gain, "added-token": {}}}))
    (tmp_path / SEEN).write_text(json.dumps({"click-log-loader": advised | {"does_not_fit": []}}))
    rows = page(tmp_path, SEEN, 2).splitlines()
    assert "| click-log-loader | launch | `data-loading` | 2.00 to 4.00× | 2.50× | yes | yes |" in rows
    assert "| added-token | | not recorded | | | | |" in rows


def test_cases_import_nothing_of_tracekit():
    asking = CASES / "diagnose.py"
    assert not [path for path in CASES.rglob("*.py") if path != asking and "tracekit" in path.read_text()]


def test_the_page_of_diagnosis_shows_what_was_measured():
    text = (CASES.parents[1] / "docs" / "diagnosis.md").read_text()
    for mark, name in (("blind", BLIND), ("seen", SEEN)):
        assert _between(text, mark) == page(CASES / "h100", name)
    for mark, name in (("blind", BLIND), ("seen", SEEN)):
        for number, (_, folder) in list(SETS.items())[1:]:
            if (CASES / f"h100_{folder}" / name).exists():
                assert _between(text, f"{folder}-{mark}") == page(CASES / f"h100_{folder}", name, number)


@pytest.mark.parametrize("folder", ["h100_again", "h200_again", "h100_again_fixed"])
def test_the_page_of_diagnosis_shows_the_other_machines(folder):
    text = (CASES.parents[1] / "docs" / "diagnosis.md").read_text()
    machine, _, fixed = folder.partition("_again")
    rows = [row for row in page(CASES / folder, BLIND).splitlines() if "not recorded" not in row]
    assert _between(text, f"again-{machine}{fixed.replace('_', '-')}").splitlines() == rows


def test_the_table_of_all_sets_counts_what_is_recorded():
    told = _between((CASES.parents[1] / "docs" / "diagnosis.md").read_text(), "summary").splitlines()
    assert len(told) >= 4
    assert told == summary(CASES).splitlines()[: len(told)]


def _between(text, mark):
    return text.partition(f"<!-- {mark} -->\n")[2].partition("\n<!-- end -->")[0]


@pytest.mark.parametrize("name", ["data-loading", "preprocessing", "sync-in-a-loop", "unfused-optimizer"])
def test_a_planted_cause_is_the_first_advice(name):
    stored = json.loads((CASES / "h100" / "diagnosis.json").read_text())[name]
    now = diagnosis(CASES / "h100" / f"{name}.json.gz", cases()[name])
    assert now["advice"][0]["id"] == stored["advice"][0]["id"]
    assert now["advice"][0]["id"] in cases()[name].advice


@pytest.mark.parametrize(("number", "name"), [(5, "steering-frames"), (7, "music-codebooks"), (7, "swapped-adapters")])
def test_the_gain_of_the_fix_of_a_graph_lies_inside(number, name):
    folder, case = CASES / f"h100_{SETS[number][1]}", cases(number)[name]
    now = diagnosis(folder / f"{name}.json.gz", case)
    gain = json.loads((folder / "measured.json").read_text())["cases"][name]["gain"]["median"]
    asked = now.get("of_mend", now["advice"][0])
    assert now["advice"][0]["id"] in case.advice
    assert 0.6 * gain < asked["expected"] < 1.6 * gain and asked["low"] <= gain <= asked["high"]


def test_on_a_gpu_that_is_too_small_what_makes_it_fit_comes_first():
    there = tracekit.analyze(CASES / "h100" / "does-not-fit.json.gz", "t4")
    assert "does not fit an NVIDIA T4: at least 25." in headline(there)
    assert headline(there).endswith("it may fit with gradient checkpointing.")
    first = "gradient-checkpointing"
    assert (there.recommendations[0].id, there.plan[0].name, there.memory_fit.fitting[0].name) == (first, first, first)
    assert there.plan[0].memory_bytes < 16e9
    jsonschema.validate(json.loads(to_json(there)), schema())


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    out = tmp_path_factory.mktemp("cases")
    names = ["eager-decode", "sync-in-a-loop", "unfused-optimizer"]
    command = [sys.executable, CASES / "run.py", out, *names, "--device", "cpu", "--tiny", "--rounds", "3"]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return out


def test_both_variants_are_timed(ran):
    measured = json.loads((ran / "measured.json").read_text())
    assert measured["torch"] and measured["tiny"]
    for row in measured["cases"].values():
        for variant in ("slow", "mended"):
            spread = row[variant]["step_ms"]
            assert 0 < spread["q1"] <= spread["median"] <= spread["q3"]
            assert row[variant]["rounds"] == 3
        assert row["gain"]["median"] > 0


def test_the_slow_variant_is_recorded(ran):
    events = {name: _events(ran / f"{name}.json.gz") for name in ("sync-in-a-loop", "unfused-optimizer")}
    assert sum(_is(event, "ProfilerStep#") for event in events["sync-in-a-loop"]) == 2
    assert any(_is(event, "script.py(") for event in events["sync-in-a-loop"])
    assert any(_is(event, "aten::is_nonzero") for event in events["sync-in-a-loop"])
    assert any(_is(event, "Optimizer.step#AdamW") for event in events["unfused-optimizer"])
    assert not any(_is(event, "aten::_fused_adamw_") for event in events["unfused-optimizer"])


def test_an_unknown_case_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(CASES / "run.py"), str(tmp_path), "no-such-case"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(sys.argv[0], run_name="__main__")
    said = capsys.readouterr().err
    assert ended.value.code == 2 and "no-such-case" in said and "offload" in said


def _events(path):
    return json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]


def _is(event, name):
    return event.get("name", "").startswith(name)
