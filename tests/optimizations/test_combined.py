import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_lists import base

from tracekit.advise import OPTIMIZATIONS, Combined, find, op_class_times, parse, predicted_speedup, refusal
from tracekit.analyzers.core import InputError, UnknownNameError

LAUNCH_BOUND = base("h200", tokens=1, width=768, heads=12, layers=3, precision="fp32", batch_size=1)
DEVICE_BOUND = base("a100", tokens=512, keys=512, width=2048, layers=2, precision="fp32", host_us=2.0, batch_size=1)
bases = st.sampled_from([LAUNCH_BOUND, DEVICE_BOUND])
names = st.lists(st.sampled_from([each.id for each in OPTIMIZATIONS]), min_size=1, max_size=4, unique=True)
FEW = settings(max_examples=25, deadline=None)


def combinable(chosen):
    try:
        return parse("+".join(chosen))
    except InputError:
        return None


@pytest.mark.parametrize("optimization", OPTIMIZATIONS, ids=lambda each: each.id)
def test_one_combined_is_that_one(optimization):
    for baseline in (LAUNCH_BOUND, DEVICE_BOUND):
        together = Combined((optimization,))
        assert together.objection(baseline) == optimization.objection(baseline)
        if optimization.objection(baseline) is None:
            assert predicted_speedup(together, baseline) == predicted_speedup(optimization, baseline)
            assert together.work(baseline) == optimization.work(baseline)


@FEW
@given(names, st.randoms(use_true_random=False), bases)
def test_the_order_in_which_they_are_written_does_not_matter(chosen, random, baseline):
    shuffled = random.sample(chosen, len(chosen))
    one, other = combinable(chosen), combinable(shuffled)
    assert (one is None) == (other is None)
    if one is None or other is None:
        return
    assert one.id == other.id
    if one.objection(baseline) is None:
        assert predicted_speedup(one, baseline) == predicted_speedup(other, baseline)


@FEW
@given(names, bases)
def test_an_interval_is_ordered_and_the_classes_sum_to_the_latency(chosen, baseline):
    together = combinable(chosen)
    if together is None or refusal(together, baseline):
        return
    gain = predicted_speedup(together, baseline)
    assert 0 < gain.low <= gain.expected <= gain.high
    after = together.applied(baseline, "expected")
    times = op_class_times(baseline, after)
    assert sum(each.before_ns for each in times) == round(baseline.stated_ns)
    assert sum(each.after_ns for each in times) == round(after.latency_ns)


def test_it_is_simulated_and_not_multiplied():
    alone = [predicted_speedup(find(name), DEVICE_BOUND).expected for name in ("tf32", "half-precision")]
    assert min(alone) > 1.5
    assert "tf32" in parse("half-precision+tf32").id
    assert "32" in parse("half-precision+tf32").objection(DEVICE_BOUND)


def test_a_step_is_judged_after_those_before_it():
    assert "16 bits" in find("int8-weight-only").objection(base("h200", precision="fp32", batch_size=1))
    assert parse("int8-weight-only+half-precision").objection(base("h200", precision="fp32", batch_size=1)) is None


def test_work_is_multiplied_and_memory_folded():
    gb, kept = 10**9, 32 * 2**20
    baseline = base("h200", precision="fp32", batch_size=2, weight_bytes=8 * gb, peak_memory_bytes=10 * gb)
    together = parse("batching:16+half-precision")
    assert together.work(baseline) == 8
    capture = together.applied(baseline, "expected").source.capture
    assert (capture.dtype, capture.batch_size) == ("bf16", 16)
    assert capture.weight_bytes == 4 * gb
    assert capture.peak_memory_bytes == 4 * gb + 8 * (2 * gb - kept) / 2 + kept


def test_names_are_found_with_their_argument():
    assert find("half-precision:fp16").name == "half-precision:fp16"
    assert find(" SDPA ").id == "sdpa"
    assert "float16" in find("half-precision:fp16").how_to(LAUNCH_BOUND)
    assert parse("cuda-graphs+half-precision").id == "half-precision+cuda-graphs"


def test_names_that_are_wrong_are_explained():
    with pytest.raises(UnknownNameError, match=r"Nearest: half-precision"):
        find("half")
    with pytest.raises(InputError, match="takes no argument"):
        find("tf32:1")
    with pytest.raises(InputError, match="not a 16-bit dtype"):
        find("half-precision:fp8")
    with pytest.raises(InputError, match="not a batch size"):
        find("batching:0")
    with pytest.raises(InputError, match="twice"):
        parse("compile+compile")


@pytest.mark.parametrize(
    "pair", ["int8-weight-only+int4-weight-only", "nf4+llm-int8", "fp8-dynamic+int8-dynamic", "compile+max-autotune"]
)
def test_what_excludes_each_other_is_refused(pair):
    with pytest.raises(InputError, match="exclude each other"):
        parse(pair)
