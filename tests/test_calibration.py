"""A calibration is measured once, kept, and changes the predictions for its GPU alone."""

import json
import os
import socket
import tomllib
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from tracekit.advise import corrections
from tracekit.analyzers.core import TracekitError
from tracekit.analyzers.cost import LAUNCH_CALL, Cost, Product, estimate_ns, hardware
from tracekit.analyzers.predict import host
from tracekit.calibrate import Calibration, applied, store
from tracekit.calibrate.files import decode, encode, load
from tracekit.cli import main
from tracekit.cli.calibrate import _text
from tracekit.run import cpu_state

H200, A100 = hardware.find("h200"), hardware.find("a100")
TABLE = tomllib.loads((Path(host.__file__).parent / "host_costs.toml").read_text())


@pytest.fixture(autouse=True)
def own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def calibration(factor: float = 1.0, **changes: object) -> Calibration:
    """A calibration of this machine, whose host takes `factor` times as long as the host of the constants."""
    own = Calibration(
        measured_at="2026-11-21T03:00:00+00:00",
        versions={"torch": "2.11.0"},
        processor=cpu_state().name,
        processors=os.cpu_count() or 1,
        gpu="h200",
        device_name="NVIDIA H200",
        host_us={name: (us * factor,) * 3 for name, us in TABLE["probe_us"].items()},
    )
    return msgspec.structs.replace(own, **changes)


def test_what_is_stored_is_found_again_for_its_gpu_alone(own_configuration: Path) -> None:
    path = store(calibration())
    assert path.parent == own_configuration / "tracekit" / "calibration"
    assert load("h200") == calibration()
    assert load("a100-80gb-sxm") is None


def test_the_file_is_for_people_and_names_no_host() -> None:
    text = encode(calibration()).decode()
    assert text.startswith('{\n  "version": 1,\n  "measured_at": "2026-11-21')
    assert socket.gethostname() not in text


@pytest.mark.parametrize("content", ["", "{}", '{"version": 1}', "[1]", '{"version": "1", "host_us": 3}'])
def test_what_is_no_calibration_is_explained(content: str) -> None:
    store(calibration()).write_text(content)
    with pytest.raises(TracekitError, match="is not a calibration"):
        load("h200")


def test_host_times_whose_percentiles_are_out_of_order_are_no_calibration() -> None:
    store(calibration()).write_text(json.dumps(msgspec.to_builtins(calibration()) | {"host_us": {"view": [3, 2, 1]}}))
    with pytest.raises(TracekitError, match="is not a calibration"):
        load("h200")


def test_another_version_is_measured_anew() -> None:
    with pytest.raises(TracekitError, match="unsupported version"):
        decode(encode(calibration(version=2)), "a file")


def test_a_slower_host_is_slower_in_every_class_and_narrower() -> None:
    slow = applied.host_costs(calibration(1.5), H200)
    assert slow.calibrated and slow.source == "calibrated on this machine on 2026-11-21"
    for name in host.CLASSES:
        op_us = TABLE["op_us"].get(name, TABLE["op_us"]["launch"])
        assert slow.op_us[name] == pytest.approx(1.5 * TABLE["calibrated"]["ratio"] * op_us)
    wide = host.assumed(H200).span
    assert slow.span.high - slow.span.low < 0.5 * (wide.high - wide.low)


def test_of_a_gpu_that_is_not_here_nothing_is_known() -> None:
    for known in (None, calibration(2.0)):
        costs = applied.host_costs(known, A100)
        assert costs == host.assumed(A100) and not costs.calibrated
        assert "tracekit calibrate" in costs.source
        assert applied.as_calibrated(A100, known) == A100


def test_a_machine_without_a_gpu_is_not_the_host_of_one() -> None:
    assert not applied.host_costs(calibration(gpu="", device_name=""), H200).calibrated


def test_measured_rates_correct_what_is_modelled_for_the_same_product() -> None:
    side = 8192
    product = Cost(2 * side**3, 4 * side**2, 2 * side**2, "gemm", "bf16", 2 * side**2, Product(1, side, side, side))
    modelled_tflops = product.flops / estimate_ns(product, H200) / 1e3
    slower = applied.as_calibrated(H200, calibration(sustained_tflops={"bf16": 0.8 * modelled_tflops}))
    assert estimate_ns(product, slower) == pytest.approx(estimate_ns(product, H200) / 0.8, rel=0.05)
    assert slower.sustained_flops("fp32") == pytest.approx(H200.sustained_flops("fp32"))
    assert applied.as_calibrated(H200, calibration(sustained_tflops={"bf16": 1.0})).sustained_flops("bf16") == (
        pytest.approx(0.5 * H200.sustained_flops("bf16"))
    )


def test_a_kernel_starts_after_its_launch_has_returned() -> None:
    """The launch call takes half of the measured time from its beginning. 0, as in old files, means not measured."""
    measured = applied.as_calibrated(H200, calibration(launch_us=1.9))
    assert measured.launch_us * (1 - LAUNCH_CALL) == pytest.approx(1.9)
    assert applied.as_calibrated(H200, calibration(launch_us=0.0)).launch_us == H200.launch_us
    assert applied.as_calibrated(H200, calibration()).launch_us == H200.launch_us
    assert b"launch_us" not in encode(calibration())


def test_a_latency_that_cannot_be_told_is_not_text_as_none() -> None:
    assert "launch to start    not measurable" in _text(calibration())
    assert "launch to start       1.90" in _text(calibration(launch_us=1.9))


def test_calibrate_measures_the_host_that_runs_it(tmp_path: Path) -> None:
    target = tmp_path / "here.json"
    result = CliRunner().invoke(main, ["calibrate", "-o", str(target)])
    assert result.exit_code == 0, result.output
    measured = decode(target.read_bytes(), target)
    assert set(TABLE["probe_us"]) <= set(measured.host_us)
    assert all(0 < low <= median <= high for low, median, high in measured.host_us.values())
    assert measured.host_us["view"][1] < measured.host_us["attention"][1] < measured.host_us["optimizer"][1] * 64
    assert load("") is None and load("h200") is None


def test_calibrate_is_stored_where_it_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracekit.calibrate.measure", lambda _: calibration(gpu="", device_name=""))
    assert CliRunner().invoke(main, ["calibrate"]).exit_code == 0
    assert load("") == calibration(gpu="", device_name="")


def test_a_modelled_run_says_whose_host_it_took(tmp_path: Path) -> None:
    store(calibration(1.5))
    options = ["profile", "--model", "distilgpt2", "--device", "model", "--workload", "decode", "--steps", "1"]
    latency = {}
    for gpu in ("h200", "a100"):
        folder = tmp_path / gpu
        result = CliRunner().invoke(main, [*options, "--gpu", gpu, "-o", str(folder)])
        assert result.exit_code == 0, result.output
        latency[gpu] = msgspec.json.decode((folder / "analysis.json").read_bytes())["source"]["capture"]
    assert latency["h200"]["host_source"] == "calibrated on this machine on 2026-11-21"
    assert latency["h200"]["host_op_us"] == pytest.approx(1.5 * TABLE["calibrated"]["ratio"] * TABLE["fit"]["base_us"])
    assert latency["a100"]["host_source"].startswith("assumed: 22 to 48 µs")


def test_the_history_of_a_machine_is_read_in_order() -> None:
    assert corrections.read("h200") == []
    one = corrections.Measurement(
        verified_at="2026-11-21T04:00:00+00:00",
        gpu="h200",
        model="gpt2",
        workload="decode",
        batch_size=1,
        seq_len=512,
        dtype="fp32",
        applied="cuda-graphs",
        predicted=(2.0, 2.5, 3.0),
        measured=2.45,
    )
    other = msgspec.structs.replace(one, applied="compile", measured=1.8)
    corrections.add(one)
    path = corrections.add(other)
    assert corrections.read("h200") == [one, other] and corrections.read("t4") == []
    path.write_text("{}\n")
    with pytest.raises(TracekitError, match="cannot be read"):
        corrections.read("h200")
