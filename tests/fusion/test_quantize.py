"""Weights of 4 and 8 bits in place of linear layers: error, saving, adapters."""

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import save_file

import tracekit
from tracekit.analyzers.core import InputError, TracekitError
from tracekit.quantization import layers, load, save
from tracekit.quantization.layers import WeightOnlyLinear


def model():
    torch.manual_seed(0)
    body = torch.nn.Sequential(torch.nn.Linear(128, 96), torch.nn.ReLU(), torch.nn.Linear(96, 128))
    return torch.nn.ModuleDict({"body": body, "odd": torch.nn.Linear(7, 3), "lm_head": torch.nn.Linear(128, 5)})


@pytest.mark.parametrize(("to", "most"), [("int4", 0.15), ("int8", 0.01)])
def test_a_model_computes_almost_the_same(to, most):
    x, plain = torch.randn(3, 128), model()
    expected = plain["body"](x)
    quantized = tracekit.quantize(plain, to, group_size=32)["body"]
    assert type(quantized[0]) is WeightOnlyLinear
    error = (quantized(x) - expected).norm() / expected.norm()
    assert 0 < error < most
    assert quantized[0].packed.nbytes == 128 * 96 * (4 if to == "int4" else 8) // 8


def test_heads_and_layers_that_no_group_divides_stay():
    quantized = tracekit.quantize(model(), "int4", group_size=32)
    assert type(quantized["lm_head"]) is type(quantized["odd"]) is torch.nn.Linear


@pytest.mark.parametrize("to", ["int4", "int8"])
def test_an_output_may_have_one_scale(to):
    """Groups are multiples of 32, such as 768, not powers of two alone."""
    torch.manual_seed(0)
    x, plain = torch.randn(3, 768), torch.nn.Sequential(torch.nn.Linear(768, 96))
    expected = plain(x)
    quantized = tracekit.quantize(plain, to, group_size=768)
    assert quantized[0].scale.shape == (96, 1)
    assert (quantized(x) - expected).norm() / expected.norm() < (0.25 if to == "int4" else 0.02)


def test_nf4_is_saved_and_loaded(tmp_path):
    pytest.importorskip("bitsandbytes")

    def tied():
        built = model()
        built["again"] = built["body"][2]
        return built

    x, quantized = torch.randn(3, 128), tracekit.quantize(tied(), "nf4")
    save(quantized, tmp_path / "model.safetensors")
    other = tied()
    for weight in other.parameters():
        torch.nn.init.normal_(weight)
    again = load(other, tmp_path / "model.safetensors")
    assert torch.equal(again["body"](x), quantized["body"](x))
    assert again["again"] is again["body"][2]


FORMATS = pytest.mark.parametrize("to", ["int4", "int8", "nf4"])


def with_adapters(to, built):
    if to == "nf4":
        pytest.importorskip("bitsandbytes")
    return tracekit.quantize(built, to, group_size=32, trainable="lora")


def trained(quantized):
    return {name for name, weight in quantized.named_parameters() if weight.requires_grad}


@FORMATS
def test_adapters_are_saved_and_loaded(tmp_path, to):
    x, quantized = torch.randn(3, 128), with_adapters(to, model())
    torch.nn.init.normal_(quantized["body"][0].lora_b)
    save(quantized, tmp_path / "model.safetensors")
    again = load(model(), tmp_path / "model.safetensors")
    torch.testing.assert_close(again["body"](x), quantized["body"](x))
    assert trained(again) == trained(quantized)


def plain_weight(layer):
    if isinstance(layer, WeightOnlyLinear):
        return layer.weight
    functional = pytest.importorskip("bitsandbytes.functional")
    return functional.dequantize_4bit(layer.weight.data, layer.weight.quant_state)


@FORMATS
def test_an_adapted_layer_has_the_result_and_the_gradients_of_plain_ops(to):
    layer = with_adapters(to, torch.nn.Sequential(torch.nn.Linear(128, 96)))[0]
    a, b = layer.lora_a, torch.nn.init.normal_(layer.lora_b)
    weight, x, up = plain_weight(layer), torch.randn(3, 128, requires_grad=True), torch.randn(3, 96)
    expected = torch.nn.functional.linear(x, weight, layer.bias) + x @ a.t() @ b.t()
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-4)
    measured = torch.autograd.grad((layer(x) * up).sum(), (x, a, b))
    for ours, its in zip(measured, torch.autograd.grad((expected * up).sum(), (x, a, b)), strict=True):
        torch.testing.assert_close(ours, its, rtol=1e-4, atol=1e-4)


@FORMATS
def test_only_adapters_train(to):
    quantized = with_adapters(to, model())["body"]
    before = [plain_weight(quantized[0]), quantized[0].bias.clone()]
    x, optimizer = torch.randn(8, 128), torch.optim.SGD(quantized.parameters(), lr=0.05)
    target, losses = torch.randn(8, 128), []
    for _ in range(20):
        loss = (quantized(x) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    assert all(torch.equal(*pair) for pair in zip(before, [plain_weight(quantized[0]), quantized[0].bias], strict=True))
    assert trained(quantized) == {f"{at}.lora_{which}" for at in (0, 2) for which in "ab"}


def test_the_gradient_of_the_input_is_that_of_the_weights():
    layer = WeightOnlyLinear.of(torch.randn(6, 64), None, 4, 32)
    x = torch.randn(3, 64, requires_grad=True)
    layer(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.ones(3, 6) @ layer.weight)


def test_the_kernel_packs_alike():
    """With the scale of the largest magnitude, the only one that it needs for its proof."""
    kernel = pytest.importorskip("tracekit.fuse.kernels.weight_only_product")
    weight = torch.randn(6, 128)
    for bits in (4, 8):
        for ours, its in zip(layers.pack(weight, bits, 32, (1.0,)), kernel.pack(weight, bits, 32), strict=True):
            assert torch.equal(ours, its)


@pytest.mark.parametrize("rows", [4, 8, 16])
def test_each_launch_gives_the_same_product(monkeypatch, rows):
    """Blocks of each number of outputs, some of them cut off, with fewer steps in flight than there are."""
    kernel = pytest.importorskip("tracekit.fuse.kernels.weight_only_product")
    if not (torch.cuda.is_available() or kernel._is_interpreted()):
        pytest.skip("neither a GPU nor the interpreter")
    monkeypatch.setattr(kernel, "CONFIG", {"ROWS": rows, "DEEP": 2, "num_warps": 2})
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = kernel.example(torch.float32, device, 2, 17, 1600)
    torch.testing.assert_close(kernel.fused(*inputs), kernel.reference(*inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("lora", [False, "lora"])
def test_layers_of_one_input_are_joined_unless_they_have_adapters(lora):
    from tracekit.fuse.kernels import packed_projections

    mlp = torch.nn.ModuleDict({"gate_proj": torch.nn.Linear(64, 96), "up_proj": torch.nn.Linear(64, 96)}).eval()
    x, quantized = torch.randn(3, 64), tracekit.quantize(mlp, "int4", trainable=lora)
    expected = [layer(x) for layer in quantized.values()]
    if lora:
        with pytest.raises(ValueError, match="no linear layers"):
            packed_projections.apply(quantized)
        return
    joined = packed_projections.apply(quantized)["gate_proj"]._joined[0]
    assert joined.layer.packed.data_ptr() == mlp["gate_proj"].packed.data_ptr()
    assert all(torch.equal(layer(x), each) for layer, each in zip(quantized.values(), expected, strict=True))
    plain = packed_projections.remove(quantized)
    assert all(torch.equal(layer(x), each) for layer, each in zip(plain.values(), expected, strict=True))


def test_errors_say_what_to_do(tmp_path):
    with pytest.raises(InputError, match="is not a format"):
        tracekit.quantize(model(), "int3")
    with pytest.raises(InputError, match="group of 48"):
        tracekit.quantize(model(), "int4", group_size=48)
    with pytest.raises(InputError, match="no quantized layers"):
        save(model(), tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    ("built", "options", "says"),
    [
        (model, {"to": "fp4"}, "int4, int8, nf4"),
        (model, {"to": "awq", "trainable": "qlora"}, "trainable='lora'"),
        (model, {"to": "none"}, "Add trainable='lora'"),
        (model, {"to": "int4", "group_size": 48}, "multiple of 32"),
        (model, {"to": "int4", "group_size": 64.0}, "multiple of 32"),
        (model, {"to": "int4", "group_size": 512}, "group_size=128"),
        (lambda: "gpt2", {"to": "int4"}, "torch.nn.Module"),
        (lambda: torch.nn.Linear(64, 64), {"to": "int4"}, "nn.Sequential"),
        (lambda: torch.nn.Sequential(torch.nn.Linear(64, 8)).double(), {"to": "int4"}, "model.half()"),
        (lambda: torch.nn.Conv2d(3, 3, 3), {"to": "int4"}, "no nn.Linear"),
        (lambda: tracekit.quantize(torch.nn.Sequential(torch.nn.Linear(64, 8)), "int4"), {"to": "int8"}, "already"),
    ],
)
def test_what_cannot_be_quantized_says_what_to_do(built, options, says):
    with pytest.raises(InputError) as error:
        tracekit.quantize(built(), **options)
    assert says in str(error.value)


def test_files_of_other_models_are_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(InputError, match="cannot be read"):
        load(model(), path)
    save(tracekit.quantize(model(), "int4", group_size=32), path)
    with pytest.raises(InputError, match="belongs to another model"):
        load(torch.nn.Sequential(torch.nn.Linear(64, 8)), path)
    with pytest.raises(TracekitError, match="cannot be written"):
        save(tracekit.quantize(model(), "int4", group_size=32), tmp_path / "none" / "model.safetensors")


@pytest.mark.parametrize(
    "held",
    [
        "[" * 100_000,
        "{}}",
        '{"body.0": 1}',
        '{"body.0": ["int4", "32", false]}',
        '{"body.0": ["int4", -32, false]}',
        '{"body.0": ["int4", 0, false]}',
        '{"body.0": ["int4", 48, false]}',
        '{"body.0": ["int4", 96, false]}',
        '{"body.0": ["int5", 32, false]}',
        '{"": ["int4", 32, false]}',
        '{"body.0": ["int8", 9999999999999999999999, false]}',
    ],
)
def test_a_damaged_description_of_layers_is_refused_and_changes_nothing(tmp_path, held):
    path, plain = tmp_path / "model.safetensors", model()
    save_file({"x": torch.zeros(1)}, path, metadata={"tracekit weights, 5": held})
    before = [type(each) for each in plain.modules()]
    with pytest.raises(InputError, match=r"contains no quantized model|belongs to another model"):
        load(plain, path)
    assert [type(each) for each in plain.modules()] == before


def test_shared_layers_stay_shared(tmp_path):
    def tied():
        torch.manual_seed(0)
        layer = torch.nn.Linear(64, 64)
        return torch.nn.ModuleDict({"one": layer, "other": layer})

    quantized = tracekit.quantize(tied(), "int4")
    assert quantized["one"] is quantized["other"]
    save(quantized, tmp_path / "model.safetensors")
    again = load(tied(), tmp_path / "model.safetensors")
    assert again["one"] is again["other"]
    x = torch.randn(3, 64)
    torch.testing.assert_close(again["other"](x), quantized["one"](x))


CALIBRATED = pytest.mark.parametrize("to", ["awq", "smoothquant"])


def outlying(rows=512):
    """Return inputs of which some are far larger, as in trained transformers."""
    torch.manual_seed(1)
    return torch.randn(rows, 256) * torch.where(torch.arange(256) % 37 == 0, 30.0, 0.3)


def of_256():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(256, 96), torch.nn.GELU(), torch.nn.Linear(96, 8))


@CALIBRATED
def test_calibration_keeps_large_inputs_accurate_and_is_saved(tmp_path, to):
    x = outlying()
    exact = of_256()[0](x)

    def error(narrow):
        with torch.no_grad():
            return float((narrow[0](x) - exact).norm() / exact.norm())

    calibrated = tracekit.quantize(of_256(), to, group_size=32, calibration=[x[:64], x[64:128]])
    assert error(calibrated) < (
        0.75 * error(tracekit.quantize(of_256(), "int4", group_size=32)) if to == "awq" else 0.02
    )
    save(calibrated, tmp_path / "model.safetensors")
    again = load(of_256(), tmp_path / "model.safetensors")
    assert torch.equal(again(x), calibrated(x))


@CALIBRATED
def test_without_inputs_nothing_is_calibrated(to):
    with pytest.raises(InputError, match="needs inputs to calibrate"):
        tracekit.quantize(model(), to, group_size=32)


def losses(network, steps=60):
    x = outlying(128)
    target = of_256()(x).detach() * 0.5
    optimizer = torch.optim.AdamW([each for each in network.parameters() if each.requires_grad], 3e-3)
    taken = []
    for _ in range(steps):
        loss = (network(x) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        taken.append(float(loss.detach()))
    return taken


def calibrating(to):
    if to == "nf4":
        pytest.importorskip("bitsandbytes")
    return [outlying()] if to in ("awq", "smoothquant") else ()


@pytest.mark.parametrize("to", ["none", "int4", "int8", "nf4", "awq", "smoothquant"])
def test_adapters_train_beside_each_format_and_are_saved(to, tmp_path):
    options = {"group_size": 32, "trainable": "lora", "calibration": calibrating(to)}
    adapted = tracekit.quantize(of_256(), to, **options)
    taken = losses(adapted)
    assert taken[-1] < 0.5 * taken[0]
    assert all(name.rpartition(".")[2] in ("lora_a", "lora_b") for name in trained(adapted))
    save(adapted, tmp_path / "model.safetensors")
    again = load(of_256(), tmp_path / "model.safetensors")
    torch.testing.assert_close(again(outlying()), adapted(outlying()))


@pytest.mark.parametrize("to", ["int4", "int8", "nf4", "awq", "smoothquant"])
def test_quantization_aware_training_lowers_the_loss_of_the_packed_model(to, tmp_path):
    trained = tracekit.quantize(of_256(), to, group_size=32, trainable=True, calibration=calibrating(to))
    taken = losses(trained)
    assert taken[-1] < 0.5 * taken[0]
    before = trained(outlying())
    packed = tracekit.quantize(trained, to, group_size=32)
    with torch.no_grad():
        torch.testing.assert_close(packed(outlying()), before, rtol=1e-4, atol=1e-4)
    save(packed, tmp_path / "model.safetensors")
    again = load(of_256(), tmp_path / "model.safetensors")
    with torch.no_grad():
        assert torch.equal(again(outlying()), packed(outlying()))


def test_a_channel_is_one_scale_for_each_output_of_any_size():
    built = tracekit.quantize(model(), "int4", group_size="channel")
    scales = {name: each.scale.shape for name, each in built.named_modules() if isinstance(each, WeightOnlyLinear)}
    assert scales == {"body.0": (96, 1), "body.2": (128, 1)}  # of 128 and of 96 inputs; 7 are no multiple of 32
    with pytest.raises(InputError, match="multiples of 32"):
        tracekit.quantize(torch.nn.Sequential(torch.nn.Linear(7, 3)), "int4", group_size="channel")


def test_gradients_ignore_the_rounding_of_weights():
    x, plain = outlying(16), of_256()
    rounded = tracekit.quantize(of_256(), "int8", group_size=32, trainable=True)
    with torch.no_grad():
        for layer, other in ((plain[0], rounded[0]), (plain[2], rounded[2])):
            layer.weight.copy_(layers.unpack(*layers.pack(other.weight, 8, 32), 8))
    for each in (plain, rounded):
        each(x).square().sum().backward()
    torch.testing.assert_close(rounded[0].weight.grad, plain[0].weight.grad)
    torch.testing.assert_close(rounded[2].weight.grad, plain[2].weight.grad)


def test_factors_of_one_leave_what_int4_is():
    torch.manual_seed(0)
    weight = torch.randn(8, 64)
    plain, factored = (layers.WeightOnlyLinear.of(weight, None, 4, 32, each) for each in (None, torch.ones(64)))
    assert torch.equal(plain.packed, factored.packed) and torch.equal(plain.scale, factored.scale)


def test_rows_of_all_inputs_are_observed():
    from tracekit.quantization.calibration import Observed

    seen = Observed()
    for window in range(16):
        seen.add(torch.full((512, 2), float(window)))
    kept = torch.cat(seen.rows)[:, 0]
    assert 256 <= len(kept) <= 512
    assert set(kept.tolist()) == set(map(float, range(16)))


def test_observed_rows_do_not_change_with_the_inputs():
    from tracekit.quantization.calibration import Observed

    seen, inputs = Observed(), torch.ones(4, 2)
    seen.add(inputs)
    inputs.zero_()
    assert torch.cat(seen.rows).min() == 1
