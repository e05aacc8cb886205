import csv
import io
import json

import jsonschema
import numpy as np
import pytest
from hostile import hostile
from msgspec.structs import replace

from tracekit.analyzers.core import Interval
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.results import COUNTS, PLACES, Analysis, Projection
from tracekit.analyzers.trace.trace import PROBLEMS
from tracekit.reports.answer.export import to_csv, to_dict, to_json
from tracekit.reports.words import TABLES, public_frame, schema

VALIDATOR = jsonschema.Draft202012Validator(schema("analysis"))


def test_the_json_keeps_its_schema(analysis: Analysis, modelled: Analysis, imported: Analysis) -> None:
    jsonschema.Draft202012Validator.check_schema(schema("analysis"))
    projected = replace(
        analysis, projection=Projection(hardware.find("t4"), Interval(1, 2, 3), Interval(1, 1.5, 2), "Scaled.")
    )
    for each in (analysis, modelled, imported, projected, hostile(analysis)):
        VALIDATOR.validate(json.loads(to_json(each)))


def test_an_empty_analysis_keeps_it_too(analysis: Analysis) -> None:
    tables = ("work", "layers", "layer_types", "phases", "ops", "kernels")
    empty = {name: getattr(analysis, name).iloc[:0] for name in tables}
    bare = replace(analysis, **empty, problems=PROBLEMS.empty(), recommendations=(), considered=())
    bare = replace(bare, source=replace(bare.source, gpu=None, device_name="", precision=""))
    VALIDATOR.validate(json.loads(to_json(bare)))


def test_the_schema_refuses_what_it_does_not_name(analysis: Analysis) -> None:
    wrong = to_dict(analysis) | {"surprise": 1}
    with pytest.raises(jsonschema.ValidationError, match="surprise"):
        VALIDATOR.validate(wrong)
    wrong = to_dict(analysis)
    wrong["kernels"][0]["busy_us"] = "12"
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(wrong)


def test_every_field_is_described_with_its_unit() -> None:
    def fields(node: dict, path: str = "") -> list[tuple[str, dict]]:
        here = [(f"{path}/{name}", part) for name, part in node.get("properties", {}).items()]
        inner = [*node.get("properties", {}).items(), *([("[]", node["items"])] if "items" in node else [])]
        return here + [each for name, part in inner for each in fields(part, f"{path}/{name}")]

    described = fields(schema("analysis"))
    assert len(described) > 120
    assert [path for path, part in described if not part.get("description")] == []
    timed = [(path, part["description"]) for path, part in described if path.endswith("_us")]
    inside_interval = ("/projection/latency_us", "/projection/busy_us")
    assert [path for path, text in timed if "µs" not in text and path not in inside_interval] == []


def test_numbers_are_those_of_the_analysis(analysis: Analysis) -> None:
    exported = to_dict(analysis)
    assert exported["timeline"]["wall_us"] == 2367.7
    assert exported["timeline"]["gpu_busy_us"] + exported["timeline"]["gpu_idle_us"] == pytest.approx(2367.7)
    assert exported["latency"] == {
        "unprofiled_us": 2104.5,
        "unprofiled_p10_us": 2051.25,
        "unprofiled_p90_us": 2310.0,
        "samples": 50,
        "profiled_us": 2367.7,
    }
    gemv = next(kernel for kernel in exported["kernels"] if kernel["name"].startswith("gemv2T"))
    # 12 blocks of c_attn 4.1, c_proj 2.9, c_fc 5.0 and c_proj 5.1 us, and the lm_head of 41 us.
    assert (gemv["calls"], gemv["busy_us"]) == (49, 246.2)
    assert gemv["flops"] == 12 * (3_500_000 + 1_200_000 + 4_700_000 + 4_700_000) + 77_000_000
    assert sum(layer["self_busy_us"] for layer in exported["layers"]) == pytest.approx(387.7)
    assert exported["layers"][1]["parent"] == 0
    assert exported["layers"][0]["parent"] is None
    assert exported["recommendations"][0]["speedup"] == {"low": 6.8, "expected": 7.4, "high": 8.1}


def test_counters_of_each_step_and_their_places(analysis: Analysis) -> None:
    counts = COUNTS.frame({"step": [0, 1, 0], "counter": ["launches", "launches", "kernels:gemm"], "value": [5, 6, 2]})
    place = {
        "counter": ["launches"],
        "layer": [""],
        "function": ["forward"],
        "location": ["model.py:7"],
        "count": [5.5],
    }
    told = to_dict(replace(analysis, counts=counts, places=PLACES.frame(place)))
    first, second = told["counters"]
    assert (first["id"], first["a_step"]) == ("counter:launches", [5.0, 6.0])
    assert first["places"] == [{"layer": None, "function": "forward", "location": "model.py:7", "count": 5.5}]
    assert (second["counter"], second["meaning"], second["places"]) == ("kernels:gemm", None, [])
    VALIDATOR.validate(told)


def test_unknown_is_null(analysis: Analysis) -> None:
    copy = next(kernel for kernel in to_dict(analysis)["kernels"] if kernel["category"] == "memcpy")
    assert copy["flops"] is None
    assert copy["occupancy"] is None
    nowhere = replace(analysis, kernels=analysis.kernels.assign(op="", own_bound="", intensity=np.inf))
    first = to_dict(nowhere)["kernels"][0]
    assert (first["op"], first["own_bound"], first["intensity"]) == (None, None, None)
    assert "NaN" not in to_json(nowhere)
    assert "Infinity" not in to_json(nowhere)


def test_csv_holds_the_columns_and_rows_of_the_json(analysis: Analysis) -> None:
    exported = to_dict(analysis)
    for table in TABLES:
        rows = list(csv.DictReader(io.StringIO(to_csv(analysis, table))))
        expected = exported["timeline"]["steps"] if table == "steps" else exported[table]
        if table in ("counters_comparison", "fusion_plan"):
            assert rows == expected == []
            continue
        assert len(rows) == len(expected) > 0
        assert list(rows[0]) == list(expected[0]) == list(public_frame(analysis, table).columns)
    kernels = list(csv.DictReader(io.StringIO(to_csv(analysis))))
    assert float(next(row for row in kernels if row["name"] == "fmha_cutlassF_f32")["busy_us"]) == 72.0
    assert next(row for row in kernels if row["category"] == "memcpy")["flops"] == ""


def test_json_keeps_hostile_names_whole(analysis: Analysis) -> None:
    nasty = hostile(analysis)
    assert {kernel["name"] for kernel in json.loads(to_json(nasty))["kernels"]} == set(nasty.kernels["name"])
