"""Four CPU devices of JAX in one process: what one device computes, in every mode."""

import keras
import numpy as np
import pytest

from keras_vit.distribution import LAYOUT_RULES, setup
from tests.distribution.processes import all_trained, assert_agree, assert_refused, start, trained
from tests.distribution.test_layout import LATER
from tests.processes import finish
from tests.support import BACKEND, images, run_in_fresh_process, tiny_vit

pytestmark = pytest.mark.skipif(BACKEND != "jax", reason="JAX's devices")

ONE = {"mode": "single"}
MODES = {
    "data_parallel": {"mode": "data_parallel"},
    "2x2": {"mode": "model_parallel", "model_devices": 2},
    "fully_sharded": {"mode": "fully_sharded"},
    "auto_of_2": {"devices": 2},
    "model_parallel": {"mode": "model_parallel"},
}


def compare(output, modes, **options):
    """One device, then each mode in the same process of four devices."""
    runs = [{"setup": setup, **options} for setup in [ONE, *(MODES[mode] for mode in modes)]]
    one, *others = all_trained(output, runs, devices=4)
    for many in others:
        assert_agree(one, many)
    return others


def test_more_devices_train_the_same(tmp_path):
    """With dropout: JAX draws one mask for the whole batch, however it is cut.

    Half of every kernel lies on each of two devices that share a model, with its momenta. That the
    batch alone is cut, `test_processes` has.
    """
    options = {"dropout": 0.1, "report_shards": True}
    cut, sharded = compare(tmp_path, ["2x2", "fully_sharded"], **options)
    assert shares(cut, "kernel") == {0.5} and shares(sharded, "kernel") == {0.25}
    assert shares(cut, "gamma") == {1.0} and shares(cut, "dense_1_kernel_momentum") == {0.5}


@pytest.mark.slow
def test_a_later_family_trains_the_same(tmp_path):
    """A gate, norms in all places, factors and frequencies that learn, and two heads."""
    options = {"model": {**LATER, "num_heads": 2}, "report_shards": True}
    cut, _ = compare(tmp_path / "later", ["2x2", "fully_sharded"], **options)
    for name in ("gate_kernel_momentum", "frequencies_momentum", "mlp/norm/gamma"):
        assert shares(cut, name) == {0.5}
    assert shares(cut, "layer_scale") == {1.0}
    tables = {"position": "relative_2d", "block": "parallel", "pool": "token_mean", "projection": 4}
    (cut,) = compare(tmp_path / "tables", ["2x2"], model=tables, report_shards=True)
    assert shares(cut, "table_momentum") == shares(cut, "projection_kernel_momentum") == {0.5}


def shares(results, name):
    return {float(v) for k, v in results.items() if k.startswith("share/") and name in k}


@pytest.mark.slow
def test_more_modes_and_accumulation(tmp_path):
    """Two batches of 4 to an update: with its clipping, average and schedule."""
    compare(tmp_path / "other", ["data_parallel", "auto_of_2", "model_parallel"])
    compare(tmp_path / "accumulate", MODES, accumulate=2, steps=6)


@pytest.mark.slow
def test_a_run_goes_on_with_other_devices(tmp_path):
    """Stopped in the middle of an epoch on four devices, continued on a model cut in two."""
    options = {"dropout": 0.1, "save_every": 1}
    stopped = {**options, "setup": MODES["fully_sharded"], "stop_after": 3}
    printed, code = finish(start(tmp_path / "stopped", stopped, 4))
    assert code == 143 and "Stopped and saved" in printed, printed
    resumed = trained(tmp_path / "stopped", {**options, "setup": MODES["2x2"]}, 4)
    assert_agree(trained(tmp_path / "one", options), resumed)


def test_what_does_not_fit_is_told_before_the_first_step(tmp_path):
    cases = {
        "which has 2 heads": {"setup": MODES["model_parallel"], "model": {"num_heads": 2}},
        "batch of 6 images, 4 devices": {"setup": MODES["data_parallel"], "batch_size": 6},
        "devices=5; there are 4": {"setup": {"mode": "data_parallel", "devices": 5}},
        "model_devices=3, 4 devices": {"setup": {"mode": "model_parallel", "model_devices": 3}},
        "'block_9/mlp/bias', which matches none of": {
            "setup": {"mode": "model_parallel", "rules": {"block_9/mlp/bias": []}}
        },
    }
    assert_refused(tmp_path, cases, devices=4)


def test_models_outside_of_a_compiled_step():
    """One made before `setup` is told; one made after it takes a batch that is not divided.

    Where Keras takes that batch by itself, `keras_vit.workarounds.is_compiling` may go.
    """
    code = """
import tests.bare
import keras, numpy as np
from keras_vit.distribution import jax as engine, setup
from tests.support import tiny_vit
model, images = tiny_vit(), np.zeros((3, 16, 16, 3))
with setup("fully_sharded") as devices:
    try:
        devices.check_model(model)
    except ValueError as error:
        print(error)
    model = tiny_vit()
    print(model(images).shape)
    engine.is_compiling = lambda: True
    try:
        model(images)
    except ValueError as error:
        print("by itself:", error)
"""
    flags = "--xla_force_host_platform_device_count=2"
    printed = run_in_fresh_process(code, XLA_FLAGS=flags)
    assert "made after" in printed and "(3, " in printed
    assert "Sharding NamedSharding" in printed.partition("by itself:")[2], printed


def test_a_users_rule_stands_in_place_of_one_with_its_pattern():
    pattern = next(pattern for pattern in LAYOUT_RULES if pattern.endswith("out/kernel"))
    with setup("model_parallel", devices=1, rules={pattern: ()}) as devices:
        (kernel,) = [v for v in tiny_vit(depth=1).variables if v.path.endswith("out/kernel")]
        assert devices.distribution.get_variable_layout(kernel).axes == (None,) * 3


def test_one_device_may_be_asked_to_be_parallel():
    """One command serves machines with one device and with many."""
    before = keras.distribution.distribution()
    with setup("data_parallel", devices=1) as devices:
        model = tiny_vit()
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        devices.check_model(model)
        model.fit(images((4, 16, 16, 3)), np.zeros(4), verbose=0)
    assert keras.distribution.distribution() is before is None
    assert np.isfinite(model.predict(images((2, 16, 16, 3)), verbose=0)).all()
