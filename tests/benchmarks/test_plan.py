"""The plan for many chips: its shapes, its sizes, and what it refuses."""

import json
import sys

import keras
import pytest

import keras_vit
from keras_vit.training import SGDM, AdamW
from tests.support import BACKEND, run_in_fresh_process, tiny_vit

TINY = {"width": 8, "depth": 2, "num_heads": 2, "patch_size": 8}
needs_shapes = pytest.mark.skipif(BACKEND == "tensorflow", reason="plan.py takes JAX or PyTorch")


def tiny_shapes(optimizer="adamw", ema=False, **options):
    from plan_shapes import get_shapes

    chosen = {**TINY, **options}
    return get_shapes(None, chosen.pop("image_size", 16), 3, optimizer, ema, **chosen)


def placing(mode="data_parallel", devices=1, model_devices=1, **options):
    from plan_memory import Placing

    return Placing(mode, devices, model_devices, **options)


@needs_shapes
@pytest.mark.parametrize("optimizer, made", [("adamw", AdamW), ("sgdm", SGDM)])
def test_bytes_are_those_of_the_real_model_and_optimizer(optimizer, made):
    shapes, model, rule = tiny_shapes(optimizer, ema=True), tiny_vit(), made(use_ema=True)
    before = sum(4 for v in rule.variables)  # the counter and the learning rate
    rule.build(model.trainable_variables)
    size = lambda variables: sum(4 * v.value.numel() for v in variables)  # noqa: E731
    if BACKEND == "jax":
        size = lambda variables: sum(v.value.nbytes for v in variables)  # noqa: E731
    assert shapes.bytes("bytes") == size(model.trainable_variables)
    in_all = shapes.bytes("slots") + shapes.bytes("average")
    assert in_all == size(rule.variables) - before
    assert shapes.bytes("average") == shapes.bytes("bytes")


@needs_shapes
def test_every_variant_has_a_plan():
    """The hybrids with their stems among them; without values this costs seconds."""
    from plan_memory import block_bytes, outside_bytes
    from plan_shapes import get_shapes

    for name in ("R50+B/32", "R+Ti/16", "S/16-plain", "So400m/14"):
        shapes = get_shapes(name, depth=1)
        one = placing(devices=8)
        assert min(*block_bytes(shapes, one), *outside_bytes(shapes, one)) > 0, name


@needs_shapes
def test_layouts_cut_what_the_library_cuts():
    from keras_vit.distribution.layout import LAYOUT_RULES, largest_axis, split_axes

    shapes = tiny_shapes()
    halves = sum(
        v.bytes // (2 if "model" in split_axes(LAYOUT_RULES, v.path, v.shape, 2) else 1)
        for v in shapes.variables
    )
    assert shapes.bytes("bytes", "model_parallel", 2) == halves < shapes.bytes("bytes")
    quarters = sum(
        v.bytes // (1 if largest_axis(v.shape, 4) is None else 4) for v in shapes.variables
    )
    assert shapes.bytes("bytes", "fully_sharded", 4) == quarters < halves
    with pytest.raises(ValueError, match="numbers that fit are"):
        shapes.bytes("bytes", "model_parallel", 4)  # of two heads


@needs_shapes
def test_the_largest_batch_fits_and_one_more_does_not():
    from plan_memory import largest_batch, total

    shapes = tiny_shapes()
    for remat in (False, True):
        one = placing(remat=remat)
        images = largest_batch(shapes, one, 10**6)
        assert total(shapes, one, images) <= 10**6 < total(shapes, one, images + 1)
    assert largest_batch(shapes, placing(), 1000) == 0


@needs_shapes
def test_rematerialisation_bfloat16_and_fused_attention_save_activations():
    from plan_memory import step

    shapes = tiny_shapes(depth=6, image_size=64)
    kept = lambda **options: step(shapes, placing(**options), 4)["activations"]  # noqa: E731
    assert kept(remat=True) < kept(attention="fused") < kept()
    assert 0.45 < kept(precision="mixed_bfloat16") / kept() < 0.6  # images stay float32


@needs_shapes
def test_traffic_of_the_layouts():
    from plan_traffic import activations, data_parallel_minimum, gradients

    shapes, n = tiny_shapes(), 4
    whole = shapes.bytes("bytes")
    assert gradients(shapes, placing(devices=n)) == 2 * 3 / 4 * whole
    assert data_parallel_minimum(shapes, n) == 2 * 3 / 4 * whole
    sharded = gradients(shapes, placing("fully_sharded", n))
    assert 1 < sharded / (2 * 3 / 4 * whole) <= 1.5  # three halves where all is cut
    # One group: no gradients are summed, and each block sums its 5 tokens of 8 values 6 times.
    parallel = placing("model_parallel", 2, 2)
    assert gradients(shapes, parallel) == 0
    tokens, logits = 3 * 5 * 8 * 4, 3 * 3 * 4
    assert activations(shapes, parallel, 3) == 2 * 6 * tokens + tokens / 2 + logits


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "text, size", [("95GB", 95 * 10**9), ("80GiB", 80 * 2**30), (" 0.5 tb", 5 * 10**11)]
)
def test_memory_sizes(text, size):
    from plan import memory_size

    assert memory_size(text) == size


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--hbm", "95"], "a positive number with a unit"),
        (["--hbm", "95GX"], "Received: '95GX'"),
        (["--hbm", "0GB"], "a positive number with a unit"),
        ([], "--hbm"),
        (["--hbm", "1GB", "--batch", "100"], "the nearest batches that fit are 256 and 512"),
        (["--hbm", "1GB", "--devices", "-4"], "expected a positive whole number"),
        (["--hbm", "1GB", "--model-devices", "3"], "--model-devices must divide --devices"),
        (["--hbm", "1GB", "--backend", "tensorflow"], "invalid choice"),
    ],
)
def test_bad_input_is_named(arguments, says, capsys):
    import plan

    with pytest.raises(SystemExit):
        plan.parse(arguments)
    assert says in capsys.readouterr().err


@needs_shapes
@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--variant", "Z/14"], "Unknown variant"),
        (["--variant", "B/16", "--image-size", "100"], "multiple of patch_size"),
        (["--variant", "Ti/16", "--model-devices", "2"], "3 heads"),
    ],
)
def test_what_the_library_refuses_is_passed_on(arguments, says, capsys, monkeypatch):
    import plan

    monkeypatch.setattr(sys, "argv", ["plan.py", "--hbm", "1GB", "--backend", BACKEND, *arguments])
    with pytest.raises(SystemExit):
        plan.main()
    assert says in capsys.readouterr().err


@needs_shapes
def test_the_tables(capsys, monkeypatch, tmp_path):
    import plan

    file = tmp_path / "plan.json"
    arguments = ["--variant", "Ti/16", "--heads", "4", "--depth", "2", "--devices", "8"]
    arguments += ["--batch", "64", "--hbm", "90MB", "--backend", BACKEND, "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["plan.py", *arguments])
    plan.main()
    printed = capsys.readouterr().out
    assert "Ti/16 on 8 chips of 0.09 GB: batch 64, 224 px" in printed
    rows = json.loads(file.read_text())["plans"]["Ti/16"]
    assert {row["fits"] for row in rows} == {True, False}
    assert all((row["total"] <= 90e6) == row["fits"] for row in rows)
    assert printed.count("| data_parallel |") == 2 * (2 + 1)  # precisions; remat, traffic
    assert all(row["largest_batch"] >= 8 for row in rows if row["fits"])


@needs_shapes
def test_no_memory_is_taken_for_a_billion_parameters():
    code = (
        "import sys; sys.path.insert(0, 'benchmarks'); import machine, plan_shapes\n"
        "machine.reset_peak(); before = machine.memory()\n"
        "shapes = plan_shapes.get_shapes('g/14', ema=True)\n"
        "print(shapes.parameters, machine.memory() - before)"
    )
    parameters, grown = map(int, run_in_fresh_process(code).split())
    assert parameters > 10**9 and grown < 300 * 2**20


@pytest.mark.any_backend
def test_keras_vit_knows_the_giant():
    assert keras_vit.variants.VARIANTS["g/14"].width == 1408
    assert keras.backend.backend() == BACKEND
