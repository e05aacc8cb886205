"""Filters of many taps, sorts and factorizations for which there are cheaper algorithms, and what looks like them."""

import op_lists
import pytest
from msgspec.structs import replace
from test_waste import linear, op, run

from tracekit.advise import find

CHEAPER = find("costly-algorithm")


def given(name, *shapes, ns=2_000_000.0, kinds=()):
    kinds = kinds or ["float"] * len(shapes)
    return op(name, ns=ns) | {"inputs": (str(list(map(list, shapes))), str(list(kinds)).replace("'", '"'))}


def found(*rows):
    return CHEAPER.obstacle(run(linear(call="aten::linear"), *rows)) is None


@pytest.mark.parametrize(
    ("images", "weights", "expected"),
    [
        ((1, 1, 160, 192, 160), (1, 1, 9, 9, 9), True),  # the window sum of one picture
        ((32, 12, 1, 16_384), (48, 1, 1, 801), True),  # four filters a channel
        ((16, 3, 768, 768), (3, 1, 11, 11), True),
        ((16, 3, 768, 768), (3, 1, 7, 7), False),
        ((16, 1, 16_000), (512, 1, 400), False),  # a bank of filters, which is a product
        ((16, 8, 64, 64), (8, 8, 11, 11), False),
        ((16, 8, 16_384), (8, 1, 101), False),  # transforms take as long
    ],
)
def test_filters_of_one_channel_each_compute_every_tap(images, weights, expected):
    assert found(given("aten::cudnn_convolution", images, weights)) == expected
    result = (images[0], weights[0], *images[2:])
    assert found(given("aten::convolution_backward", result, images, weights)) == expected


def test_convolutions_that_are_transposed_read_many_channels():
    assert not found(given("aten::convolution_backward", (8, 1, 4096), (8, 512, 256), (512, 1, 1024)))
    assert not found(given("aten::cudnn_convolution_transpose", (8, 512, 256), (512, 1, 1024)))


def test_passes_take_some_taps_each_and_transforms_a_time_of_their_own():
    def left(*shapes):
        base = run(linear(), given("aten::cudnn_convolution", *shapes))
        return CHEAPER.transform(base, "expected").kernel_ns[1] / base.ops.kernel_ns[1]

    assert left((1, 1, 64, 64, 64), (1, 1, 9, 9, 9)) == pytest.approx((3 * 34 + 27) / (34 + 729))
    assert left((1, 3, 64, 64), (3, 1, 11, 11)) == pytest.approx((2 * 34 + 22) / (34 + 121))
    assert left((1, 3, 65_536), (3, 1, 3_000)) == pytest.approx(0.1)


def test_rotations_of_small_matrices_take_many_times_what_a_solution_takes():
    def left(*shape):
        base = run(linear(), given("aten::_linalg_svd", shape))
        return CHEAPER.transform(base, "expected").kernel_ns[1] / base.ops.kernel_ns[1]

    assert left(8_192, 6, 7) == pytest.approx(0.14)
    assert left(16, 512, 512) == left(6, 7) == pytest.approx(0.45)


@pytest.mark.parametrize(("shape", "left"), [((8_192, 6, 7), 0), ((16, 512, 512), 3)])
def test_a_solution_of_small_matrices_does_not_read_back_whether_it_succeeded(shape, left):
    names = ("copy_", "copy_", "any", "_local_scalar_dense")
    reads = [op(f"aten::{name}", call="aten::linalg_svd", ns=2_000.0) for name in names]
    base = run(linear(), given("aten::_linalg_svd", shape) | {"call": "aten::linalg_svd"}, *reads, op("aten::mul"))
    base = replace(base, ops=base.ops.assign(sync=[False, False, False, True, False, True, False]))
    assert [len(CHEAPER.transform(base, outcome)) for outcome in ("expected", "worst")] == [4 + left, 7]


@pytest.mark.parametrize(("read", "few"), [(100, True), (1_000_000, False)])
def test_a_sort_is_whole_if_few_of_its_rows_are_read(read, few):
    sorts = given("aten::sort", (64, 1_000_000), ns=4_000_000.0) | {"call": "aten::argsort"}
    assert (
        found(sorts, given("aten::gather", (64, 1_000_000), (64, read), ns=9_000.0, kinds=("float", "long int"))) == few
    )


NEAREST = given("aten::sort", (8, 4096, 4096), ns=3_000_000.0) | {"call": "aten::argsort"}
POINTS, CHOSEN = (8, 4096, 64), (8, 20 * 4096, 64)


@pytest.mark.parametrize(("steps", "few"), [([20 * 4096, 1, 0], True), ([5_242_880, 64, 1], False)])
def test_an_index_that_a_view_repeats_for_each_number_of_a_row_counts_once(steps, few):
    gathers = given("aten::gather", POINTS, CHOSEN, ns=9_000.0, kinds=("float", "long int"))
    laid = (gathers["inputs"][0], str([[4096 * 64, 64, 1], steps]))
    assert found(NEAREST, gathers | {"strides": laid}) == few


def test_what_a_copy_writes_is_not_read_and_one_block_sorts_a_short_row_in_less_time():
    reads = given("aten::gather", POINTS, (8, 4096, 20), ns=9_000.0, kinds=("float", "long int"))
    counts = given("aten::copy_", CHOSEN, CHOSEN, ns=9_000.0, kinds=("long int", "bool"))
    assert found(NEAREST, reads, counts)
    assert not found(NEAREST, reads, given("aten::copy_", CHOSEN, CHOSEN, kinds=("long int", "long int")))
    base = run(linear(), NEAREST, reads)
    assert CHEAPER.transform(base, "expected").kernel_ns[1] == 0.5 * base.ops.kernel_ns[1]


@pytest.mark.parametrize(
    ("takes", "ns", "few"),
    [(True, 3_000.0, True), (False, 3_000.0, False), (True, 90_000.0, False)],
    ids=["a part is taken", "a short op reads something else", "neighbours of all are compared"],
)
def test_without_shapes_a_part_of_a_sort_is_read_at_once_and_in_little_time(takes, ns, few):
    sorts = (
        op("aten::copy_", call="aten::argsort", ns=200_000.0),
        op("aten::sort", call="aten::argsort", ns=9_000_000.0),
    )
    reads = op("aten::eq", ns=ns) | {"takes": takes}
    assert found(*sorts, reads) == few
    base = run(linear(), *sorts, reads)
    if few:
        assert CHEAPER.transform(base, "expected").kernel_ns[1:3].sum() < 0.2 * base.ops.kernel_ns[1:3].sum()


def test_a_choice_launches_for_all_rows_what_a_sort_launches_for_each():
    sorts = given("aten::sort", (64, 1_000_000), ns=4_000_000.0) | {"call": "aten::argsort"}
    picks = given("aten::gather", (64, 1_000_000), (64, 100), kinds=("float", "long int"))
    base = run(linear(), sorts, picks)
    each_row = replace(base, ops=base.ops.assign(launches=[1, 768, 1], host_ns=[2e4, 4e6, 2e4]))
    left = CHEAPER.transform(each_row, "expected")
    assert left.launches[1] == 16 and left.host_ns[1] < 0.15 * 4e6 / 2
    at_once = CHEAPER.transform(replace(base, ops=base.ops.assign(host_ns=[2e4, 1e5, 2e4])), "expected")
    assert at_once.launches[1] == 1 and at_once.host_ns[1] == pytest.approx(0.15 * 1e5)


ORDER = op("aten::sort", call="aten::argsort", ns=4_000_000.0)
SEARCH = [op("aten::copy_", call="aten::to", ns=100_000.0), op("aten::argmax", ns=70_000.0)]


@pytest.mark.parametrize(
    ("wanted", "reads", "places"),
    [
        ((512, 1), SEARCH, True),  # the rank of one in each row
        ((512, 100_000), SEARCH, False),  # neighbours or labels, as many as are sorted
    ],
)
def test_a_place_in_an_order_is_found_by_counting(wanted, reads, places):
    sizes = (512, 100_000)
    sort = given("aten::sort", sizes, ns=4_000_000.0) | {"call": "aten::argsort"}
    compares = given("aten::eq", sizes, wanted, ns=170_000.0, kinds=("long int", "long int"))
    assert found(sort, compares, *reads) == places
    if places:
        assert "scores >" in CHEAPER.how_to(run(linear(), sort, compares, *reads))


def test_without_shapes_an_order_is_compared_in_a_notable_time():
    compares = op("aten::eq", ns=170_000.0)
    assert found(ORDER, compares, *SEARCH)
    assert not found(ORDER, op("aten::eq", ns=1_500.0), *SEARCH)
    assert not found(ORDER, op("aten::index", ns=170_000.0), *SEARCH)


@pytest.mark.parametrize(("rows", "tall"), [(524_288, True), (512, False)])
def test_matrices_of_few_columns_are_factorized_by_their_square(rows, tall):
    solves = given("aten::linalg_lstsq", (rows, 64), (rows, 1))
    assert found(solves) == tall
    if tall:
        assert "cholesky" in CHEAPER.how_to(run(linear(), solves))
    assert found(given("aten::geqrf", (rows, 64)) | {"call": "aten::linalg_qr"}) == tall


@pytest.mark.parametrize(("launches", "tall"), [(4, True), (400, False)])
def test_without_shapes_few_kernels_of_a_factorization_take_long(launches, tall):
    base = run(linear(), op("aten::linalg_lstsq", ns=2_000_000.0))
    base = replace(base, ops=base.ops.assign(launches=[1, launches]))
    assert (CHEAPER.obstacle(base) is None) == tall


EIGENVALUES = op("aten::_linalg_eigvals", call="aten::linalg_eigvals", ns=20_000_000.0)
MADE = op("aten::mm", call="aten::matmul", ns=8_000.0)


@pytest.mark.parametrize(
    ("before", "after", "symmetric"),
    [
        (MADE, "aten::sqrt", True),  # a distance of two covariances
        (MADE, "aten::log", False),  # rates of a system that is fitted to its states
        (op("aten::copy_", ns=2_000.0), "aten::sqrt", False),  # roots of a polynomial
    ],
)
def test_eigenvalues_of_products_of_matrices_have_a_symmetric_solver(before, after, symmetric):
    assert found(before, EIGENVALUES, op(after, ns=2_000.0)) == symmetric


def test_what_a_solver_does_on_the_host_plans_no_kernel():
    plans = find("planned-again")
    assert plans.obstacle(run(linear(), MADE, EIGENVALUES | {"planned": 9_000_000.0}))
    assert plans.obstacle(run(linear(), op("aten::cudnn_convolution") | {"planned": 9_000_000.0})) is None


@pytest.mark.parametrize(("windows", "us", "costly"), [(True, 460, True), (False, 460, False), (True, 70, False)])
def test_reductions_of_windows_that_take_long_are_running_sums(windows, us, costly):
    mean, std = (op(f"aten::{name}", ns=1000.0 * us) | {"windows": windows} for name in ("mean", "std"))
    made, read = op("aten::copy_", ns=20_000.0), op("aten::sub", ns=16_000.0)
    base = run(made, mean, std | {"windows": False}, read)
    assert (CHEAPER.obstacle(base) is None) == costly
    if costly:
        assert "cumsum" in CHEAPER.how_to(base)
        left = CHEAPER.transform(base, "expected").kernel_ns / base.ops.kernel_ns
        assert left.tolist() == pytest.approx([1, *[25 * 20 / (2 * 460)] * 2, 1])


def test_a_copy_from_the_host_says_nothing_of_how_large_windows_are():
    sent = op("aten::copy_", ns=438_000.0, category="memcpy")
    mean = op("aten::mean", ns=1_460_000.0) | {"windows": True}
    assert found(sent, mean, op("aten::sub", ns=22_000.0))


@pytest.mark.parametrize(
    ("blocks", "ns", "few"),
    [(8, 6_400_000.0, True), (8, 20_000.0, False), (2_048, 6_400_000.0, False), (-1, 6_400_000.0, False)],
    ids=["few long rows", "few short rows", "many rows", "unknown"],
)
def test_scans_of_few_long_rows_leave_most_of_the_gpu_idle(blocks, ns, few):
    scan = op("aten::cumsum", ns=ns) | {"blocks": blocks}
    base = run(linear(call="aten::linear"), scan)
    assert (CHEAPER.obstacle(base) is None) == few
    assert found(scan | {"name": "aten::_linalg_eigh"}) is False
    if few:
        left = CHEAPER.transform(base, "expected").kernel_ns[1]
        assert left == pytest.approx(0.55 * blocks / base.gpu.sms * ns)


def convolved(signal, weights, frames=66_192, name="aten::cudnn_convolution"):
    cost = op_lists.product(frames, weights[0], weights[-1], "fp32")
    return given(name, signal, weights, ns=50_000_000.0) | {"cost": cost}


@pytest.mark.parametrize(
    ("weights", "spectrum"),
    [
        ((2_050, 1, 1, 2_048), True),
        ((1_025, 1, 2_048), True),  # one part
        ((257, 1, 400), True),  # padded to 512
        ((512, 1, 400), False),  # learned filters
        ((2_048, 1, 2_048), False),
        ((257, 2, 400), False),
        ((514, 1, 16), False),
        ((257, 1, 20, 20), False),
    ],
)
def test_as_many_filters_as_frequencies_are_a_transform(weights, spectrum):
    signal = (48, 1, *[1] * (len(weights) - 3), 178_448)
    layer = convolved(signal, weights)
    assert found(layer) == spectrum
    if spectrum:
        base = run(linear(), layer)
        assert "torch.stft" in CHEAPER.how_to(base)
        assert CHEAPER.transform(base, "expected").kernel_ns[1] < 2_000_000.0
        gradient = convolved(signal, weights, name="aten::convolution_backward")
        gradient["inputs"] = given("", (48, weights[0], 1_379), signal, weights)["inputs"]
        assert not found(layer, gradient)  # the filters may be trained
