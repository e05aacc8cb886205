"""The widths of intervals, and how they are fitted."""

import importlib
import math
import tomllib
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from tracekit.analyzers.predict import Sources, Untold, Widths, interval, uncertainty, widths, widths_to_decide
from tracekit.analyzers.predict.uncertainty import host_ends

INTERVALS = Path(uncertainty.__file__).with_name("intervals.toml")
WIDTHS = Widths(repeat=0.05, outcome=0.5, host=0.5)
BOUND_BY_THE_HOST = {-1.2: -0.3, -0.5: -0.2, 0.5: 0.4, 1.2: 1.0}
"""On faster hosts the GPU takes over, and less is gained; on slower ones it is more."""


def test_sources_add_as_squares_on_their_own_side():
    bounds = interval(2.0, Sources(outcome=(0.2, 0.0), host=BOUND_BY_THE_HOST), WIDTHS)
    assert bounds.expected == 2.0
    assert math.log(2.0 / bounds.low) == pytest.approx(math.hypot(0.05, 0.1, 0.2))
    assert math.log(bounds.high / 2.0) == pytest.approx(math.hypot(0.05, 0.4))
    sure = interval(2.0, Sources(), WIDTHS)
    assert math.log(sure.high / sure.low) == pytest.approx(0.1)


def test_gains_of_scripts_that_save_waiting_are_less_sure():
    script = replace(WIDTHS, untold=Untold(gain=0.1, waiting=0.4, beyond=0.5))
    for waiting, error in ((0.0, 0.1), (0.5, 0.3), (1.0, 0.5)):
        bounds = interval(2.0, Sources(most=10.0, waiting=waiting), script)
        assert math.log(2.0 / bounds.low) == pytest.approx(math.hypot(0.05, error))
        assert math.log(bounds.high / 2.0) == pytest.approx(math.hypot(0.05, error + 0.5 * math.log(5.0)))
    without = interval(2.0, Sources(most=10.0, waiting=1.0), WIDTHS)
    assert math.log(without.high / without.low) == pytest.approx(0.1)


def test_advice_does_not_depend_on_the_errors_of_a_scripts_gains():
    assert widths("script").untold and widths("timed-script").untold
    assert widths_to_decide("script") == widths("profiled")
    assert widths_to_decide("timed-script") == widths("timed")
    assert widths("profiled").untold is None


def test_physics_bounds_what_sources_add_up_to():
    bounds = interval(2.0, Sources(outcome=(4.0, 4.0), no_loss=True, most=3.0), WIDTHS)
    assert (bounds.low, bounds.high) == (pytest.approx(1.0), pytest.approx(3.0 * math.exp(WIDTHS.repeat)))
    assert interval(2.0, Sources(outcome=(4.0, 4.0), most=9.0, limit=8.0), WIDTHS).high == 8.0


def test_a_gain_that_keeps_kernels_differs_from_the_most_that_a_trace_allows_only_as_repeats_do():
    script = Widths(0.03, 1.0, 0.3, Untold(0.5, 0.0, 0.0))
    any_gain, keeping = (interval(2.0, Sources(most=2.5, keeps_kernels=keeps), script) for keeps in (False, True))
    assert any_gain.high == pytest.approx(2.0 * math.exp(math.hypot(0.03, 0.5)))
    assert keeping.high == pytest.approx(2.5 * math.exp(0.03))


@pytest.mark.parametrize(
    ("width", "down", "up"),
    [(0.0, 0.0, 0.0), (0.25, 0.1, 0.2), (0.5, 0.2, 0.4), (0.85, 0.25, 0.7), (1.2, 0.3, 1.0), (3.0, 0.3, 1.0)],
)
def test_between_simulated_hosts_the_change_is_interpolated_and_ends_beyond_them(width, down, up):
    assert host_ends(BOUND_BY_THE_HOST, width) == pytest.approx((down, up))


def test_an_inner_host_may_be_the_worst():
    assert host_ends({-1.2: 0.1, -0.5: -0.4}, 1.2) == pytest.approx((0.4, 0.1))


@pytest.mark.parametrize("evidence", ["timed", "profiled", "script", "modelled"])
def test_widths_were_measured_for_each_kind_of_evidence(evidence):
    assert 0.01 < widths(evidence).repeat < 0.2


@pytest.fixture(scope="module")
def conformal():
    return importlib.import_module("benchmarks.fitting.conformal")


@pytest.fixture(scope="module")
def rows(conformal):
    """Rows of two machines; the second has fewer rows, and a host whose speed changes."""
    draw = np.random.default_rng(1)
    judged = []
    for machine, count, spread in (("a", 80, 0.0), ("b", 20, 0.5)):
        for i in range(count):
            sources = Sources(outcome=(0.1, 0.1), host={log: log * (i % 2) for log in (-1.0, 1.0)})
            off = draw.normal(0.0, 0.03) + spread * (i % 2) * draw.uniform(0.5, 1.0)
            judged.append(conformal.Judged("timed", machine, "f", f"o{i % 2}", off, sources))
    return judged


def test_the_widths_hold_nine_tenths_and_find_what_drifts(conformal, rows):
    widths = conformal.fit(rows)
    by_machine = {name: [row for row in rows if row.machine == name] for name in "ab"}
    inside = {name: conformal.inside(some, widths).mean() for name, some in by_machine.items()}
    assert (inside["a"] + inside["b"]) / 2 >= conformal.COVERAGE - 1e-9
    assert dict(zip(conformal.NAMES, widths, strict=True))["host"] > 0.2


@pytest.mark.parametrize("evidence", ["script", "timed-script"])
def test_the_widths_of_scripts_hold_four_fifths_of_their_blind_gains_and_score_best(evidence):
    scripts = importlib.import_module("benchmarks.fitting.scripts")
    written, known = tomllib.loads(INTERVALS.read_text(encoding="utf-8"))[evidence], widths(evidence)
    blind = scripts.blind_rows() if evidence == "script" else scripts.told_rows()
    rows = [row for row in blind if row.set in scripts.recent()]
    count, inside, span, score = scripts.summary([(row, row.interval(known)) for row in rows])
    assert (count, inside) == (written["rows"], pytest.approx(written["inside"], abs=0.02))
    assert (span, score) == (pytest.approx(written["span"], abs=0.1), pytest.approx(written["score"], abs=0.02))
    assert inside >= 0.8 and span <= 1.8
    assert scripts.fit(blind) == known


def test_a_machine_that_was_left_out_is_held_less_often(conformal, rows):
    left_out = conformal.without_each(rows, lambda row: row.machine)
    assert left_out["b"] < 0.8 < left_out["a"]
