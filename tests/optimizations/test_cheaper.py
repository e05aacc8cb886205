"""Filters of many taps and sorts for few, and what looks like them."""

import pytest
from test_waste import linear, op, run

from tracekit.advise import find

CHEAPER = find("costly-algorithm")


def given(name, *shapes, ns=2_000_000.0, kinds=()):
    kinds = kinds or ["float"] * len(shapes)
    return op(name, ns=ns) | {"inputs": (str(list(map(list, shapes))), str(list(kinds)).replace("'", '"'))}


def found(*rows):
    return CHEAPER.obstacle(run(linear(), *rows)) is None


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


def test_passes_take_more_for_a_tap_and_transforms_a_time_of_their_own():
    def left(*shapes):
        base = run(linear(), given("aten::cudnn_convolution", *shapes))
        return CHEAPER.transform(base, "expected").kernel_ns[1] / base.ops.kernel_ns[1]

    assert left((1, 1, 64, 64, 64), (1, 1, 9, 9, 9)) == pytest.approx((27 / 729) ** 0.5)
    assert left((1, 3, 64, 64), (3, 1, 11, 11)) == pytest.approx((22 / 121) ** 0.5)
    assert left((1, 3, 65_536), (3, 1, 3_000)) == pytest.approx(0.1)


@pytest.mark.parametrize(("read", "few"), [(100, True), (1_000_000, False)])
def test_a_sort_is_whole_if_few_of_its_rows_are_read(read, few):
    sorts = given("aten::sort", (64, 1_000_000), ns=4_000_000.0) | {"call": "aten::argsort"}
    assert (
        found(sorts, given("aten::gather", (64, 1_000_000), (64, read), ns=9_000.0, kinds=("float", "long int"))) == few
    )


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
