from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from op_lists import base, elementwise, product

import tracekit
from tracekit.analyzers.cost import Product, estimate_ns, hardware, sm_limits
from tracekit.analyzers.predict import fusion_plan
from tracekit.analyzers.predict.op_columns import op_list
from tracekit.analyzers.predict.transforms.fusion_groups import find_groups
from tracekit.analyzers.predict.transforms.fusion_plan import configure_elements, configure_product, configure_rows

TRACES = Path(__file__).parents[2] / "examples/traces"
WIDTH = 2048


def llama_layer(i, tokens):
    """Return (name, layer, layer type, cost) of a layer with unfused norms and rotary embedding."""
    at, wide = f"model.layers.{i}", elementwise(tokens * WIDTH, "bf16")
    linear = product(tokens, WIDTH, WIDTH, "bf16")
    mean = replace(elementwise(tokens * WIDTH, "bf16", "reduction"), write_bytes=2 * tokens, row=WIDTH)
    attention = replace(wide, family="attention")
    return [
        ("aten::add", at, "Block", wide),
        ("aten::pow", f"{at}.norm", "RMSNorm", wide),
        ("aten::mean", f"{at}.norm", "RMSNorm", mean),
        ("aten::mul", f"{at}.norm", "RMSNorm", wide),
        *((("aten::mm", f"{at}.attn.{name}_proj", "Linear", linear)) for name in "qkv"),
        *((f"aten::{name}", f"{at}.attn", "Attention", wide) for name in ("mul", "neg", "cat", "mul", "add")),
        ("aten::cat", f"{at}.attn", "Attention", elementwise(99 * tokens * WIDTH, "bf16", "copy")),
        ("aten::attention", f"{at}.attn", "Attention", attention),
        ("aten::mm", f"{at}.mlp.gate_proj", "Linear", linear),
        ("aten::silu", f"{at}.mlp.act", "SiLU", wide),
        ("aten::mm", f"{at}.mlp.up_proj", "Linear", linear),
        ("aten::mul", f"{at}.mlp", "MLP", wide),
        ("aten::mm", f"{at}.mlp.down_proj", "Linear", linear),
    ]


def llama(gpu="h200", layers=3, tokens=16):
    rows = [row for i in range(layers) for row in llama_layer(i, tokens)]
    some = base(gpu, batch_size=1)
    frame = op_list(
        name=[row[0] for row in rows],
        call=[row[0] for row in rows],
        layer=[row[1] for row in rows],
        layer_type=[row[2] for row in rows],
        phase=["decode"] * len(rows),
        category=["kernel"] * len(rows),
        host_ns=[1e4] * len(rows),
        kernel_ns=[estimate_ns(row[3], some.gpu) for row in rows],
        launches=[1] * len(rows),
        sync=[False] * len(rows),
        cost=[row[3] for row in rows],
        message=[None] * len(rows),
    )
    return replace(some, ops=frame)


def test_patterns_are_found_in_every_layer():
    groups = [(group.pattern, group.rows) for group in find_groups(llama(layers=2).ops)]
    first = [
        ("add + norm", (0, 1, 2, 3)),
        ("QKV projection", (4, 5, 6)),
        ("rotary embedding", (7, 8, 9, 10, 11)),
        ("gate and up projection", (14, 16)),
        ("gated activation", (15, 17)),
    ]
    assert groups == first + [(pattern, tuple(row + 19 for row in rows)) for pattern, rows in first]


def test_like_layers_are_one_row_that_sums_them():
    plan = fusion_plan(llama(layers=3, tokens=16)).set_index("pattern")
    assert list(plan.layers) == list(plan.groups) == [3] * 5
    assert plan.layer["QKV projection"] == "model.layers.*.attn"
    assert plan.layer["add + norm"] == "model.layers.*.norm"
    assert plan.layer_type["add + norm"] == "RMSNorm"
    assert plan.ops["rotary embedding"] == "mul, neg, cat, mul, add"
    assert dict(plan.launches_saved) == {
        "add + norm": 9,
        "QKV projection": 6,
        "rotary embedding": 12,
        "gate and up projection": 3,
        "gated activation": 3,
    }
    # Two of three products need not read their input of 16 x 2048 elements of 2 bytes.
    assert plan.bytes_saved["QKV projection"] == 3 * 2 * 16 * WIDTH * 2
    assert (plan.saved_ns >= 0).all()
    assert plan.grid["add + norm"] == 16
    assert plan.tile["add + norm"] == "2048"


def test_a_chain_with_a_softmax_goes_by_rows():
    plan = tracekit.analyze(TRACES / "h200_gpt2_decode_eager_for-t4.json.gz").fusion_plan.set_index("pattern")
    softmax = plan.loc["softmax with mask"]
    assert softmax.ops.endswith("softmax")
    assert int(softmax.tile) >= 512


def test_the_plan_of_a_captured_run():
    result = tracekit.analyze(TRACES / "h200_llama-1b_decode.json.gz").fusion_plan.set_index(["pattern", "layer"])
    assert result.loc[("QKV projection", "model.layers.*.self_attn"), "layers"] == 16
    assert result.loc[("rotary embedding", "model.layers.*.self_attn"), "launches_saved"] == 16 * 9
    norms = result.loc["add + norm"]
    # 2 a layer and 1 at the end, the first of which has no sum before it; 8 launches less each.
    assert norms.groups.sum() == 32
    assert norms.launches_saved.sum() == 8 * 32


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(hardware.all_gpus()),
    st.integers(1, 10**6),
    st.integers(1, 10**5),
    st.sampled_from([2, 4]),
    st.builds(Product, st.just(1), *[st.integers(1, 20_000)] * 3),
)
def test_every_launch_fits_every_gpu(gpu, row, rows, element, shape):
    limits = sm_limits(gpu)
    for config in (
        configure_rows(row, rows, gpu),
        configure_elements(row, gpu),
        configure_product(shape, element, gpu),
    ):
        assert config.shared_bytes <= limits.shared_block_bytes
        assert config.warps * limits.threads_of_a_warp <= 1024 * limits.threads_of_a_warp / 32
        assert config.registers <= limits.registers_of_a_thread
        assert 0 < config.occupancy <= 1
        assert config.grid >= 1


def test_occupancy_is_what_the_scarcest_resource_leaves():
    h200, t4 = sm_limits(hardware.find("h200")), sm_limits(hardware.find("t4"))
    assert h200.occupancy(8, 32, 0) == 1.0  # 64 warps of 32 * 32 registers fill the 65536
    assert h200.occupancy(8, 64, 0) == 0.5  # registers
    assert h200.occupancy(4, 32, 100 * 1024) == 8 / 64  # 2 blocks of 101 KB in 228 KB
    assert t4.occupancy(4, 32, 64 * 1024) == 4 / 32
    assert t4.occupancy(4, 32, 65 * 1024) == 0
    assert h200.occupancy(1, 16, 0) == 0.5  # 32 blocks


def test_a_product_takes_the_largest_tile_that_keeps_the_gpu_busy():
    h200 = hardware.find("h200")
    assert configure_product(Product(1, 8192, 8192, 4096), 2, h200).tile.startswith("128 x ")
    assert configure_product(Product(1, 1, 3072, 2048), 2, h200).tile == "16 x 64 x 128"
    assert configure_product(Product(1, 4096, 4096, 4096), 2, hardware.find("t4")).stages == 2
