"""Op lists written by hand: a few transformer layers with unfused attention."""

from msgspec.structs import replace

from tracekit.analyzers.core import Interval
from tracekit.analyzers.cost import Cost, Product, estimate_ns, hardware
from tracekit.analyzers.predict import Baseline
from tracekit.analyzers.predict.op_columns import op_list
from tracekit.analyzers.results import Source
from tracekit.analyzers.trace import CaptureInfo

ELEMENT = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}


def product(m, n, k, precision, *, batch=1, weights=True):
    size = ELEMENT[precision]
    matrix = size * k * n * batch
    return Cost(
        flops=2 * batch * m * n * k,
        read_bytes=size * batch * m * k + matrix,
        write_bytes=size * batch * m * n,
        family="gemm",
        precision=precision,
        weight_bytes=matrix if weights else 0,
        work=Product(batch, m, n, k, weight="b" if weights else ""),
    )


def elementwise(elements, precision, family="pointwise"):
    size = ELEMENT[precision] * elements
    return Cost(elements, size, size, family, precision)


def layer(tokens, keys, width, heads, precision):
    """Return (name, layer type, cost) of each op in one layer."""
    head = width // heads
    return [
        ("aten::native_layer_norm", "LayerNorm", elementwise(tokens * width, precision, "norm")),
        ("aten::addmm", "Linear", product(tokens, 3 * width, width, precision)),
        ("aten::bmm", "Attention", product(tokens, keys, head, precision, batch=heads, weights=False)),
        ("aten::div", "Attention", elementwise(heads * tokens * keys, precision)),
        ("aten::_softmax", "Attention", elementwise(heads * tokens * keys, precision, "softmax")),
        ("aten::bmm", "Attention", product(tokens, head, keys, precision, batch=heads, weights=False)),
        ("aten::addmm", "Linear", product(tokens, width, width, precision)),
        ("aten::add", "Block", elementwise(tokens * width, precision)),
        ("aten::addmm", "Linear", product(tokens, 4 * width, width, precision)),
        ("aten::mul", "GELU", elementwise(4 * tokens * width, precision)),
        ("aten::tanh", "GELU", elementwise(4 * tokens * width, precision)),
        ("aten::addmm", "Linear", product(tokens, width, 4 * width, precision)),
    ]


def base(
    gpu="h200",
    *,
    tokens=1,
    keys=512,
    width=4096,
    heads=32,
    layers=4,
    precision="bf16",
    host_us=20.0,
    attention_type="Attention",
    **capture,
):
    """Return a measured baseline whose kernels take their modelled times."""
    device = hardware.find(gpu)
    ops = layer(tokens, keys, width, heads, precision) * layers
    costs = [cost for _, _, cost in ops]
    frame = op_list(
        name=[name for name, _, _ in ops],
        call=[name for name, _, _ in ops],
        layer=[f"h.{i // 12}.{kind}" for i, (_, kind, _) in enumerate(ops)],
        layer_type=[attention_type if kind == "Attention" else kind for _, kind, _ in ops],
        phase=[""] * len(ops),
        category=["kernel"] * len(ops),
        host_ns=[host_us * 1e3] * len(ops),
        kernel_ns=[estimate_ns(cost, device) for cost in costs],
        launches=[1] * len(ops),
        sync=[False] * len(ops),
        cost=costs,
        message=[None] * len(ops),
    )
    info = CaptureInfo(
        version="0", source="measured", device="cuda", gpu=gpu, device_name=device.name, dtype=precision, **capture
    )
    source = Source("measured", "kineto", "gpu", device.name, device, precision, "tracekit ranges", info)
    result = Baseline(frame, device, source, 0.0, 5_000.0, 1_000.0, Interval(1.0, 1.0, 1.0))
    return replace(result, stated_ns=result.latency_ns)
