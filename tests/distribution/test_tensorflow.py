"""Four logical CPUs of TensorFlow under a MirroredStrategy: what one device computes."""

import json

import numpy as np
import pytest

from keras_vit.training.callbacks import Progress
from keras_vit.training.checkpoint import describe
from tests.distribution import case
from tests.distribution.processes import all_refused, all_trained, assert_agree
from tests.support import BACKEND, run_in_fresh_process

pytestmark = pytest.mark.skipif(BACKEND != "tensorflow", reason="TensorFlow's devices")

ONE = {"mode": "single"}


def test_more_devices_train_the_same(tmp_path):
    """With clipping by the norm of all gradients, an average, and an uneven last batch."""
    one, two = all_trained(tmp_path, [{"setup": ONE}, {}], devices=2)
    assert_agree(one, two)
    assert min(one["history/gradient_norm"]) > 0.5  # so that clipping took part


def test_another_number_of_devices_is_no_other_setting():
    """So that what several have begun goes on with one."""
    from keras_vit.distribution.tensorflow import reduce_before_update

    chosen = case.recipe()
    model, pipeline = case.build(chosen), case.load(chosen)[0]
    progress = Progress(8, pipeline.steps_per_epoch)
    before = describe(model, pipeline, progress, None)
    reduce_before_update(model.optimizer)
    assert "apply" in vars(model.optimizer)
    assert describe(model, pipeline, progress, None) == before


@pytest.mark.slow
def test_four_devices_train_the_same(tmp_path):
    """In a process of their own: TensorFlow's groups of devices are for good."""
    assert_agree(*all_trained(tmp_path, [{"setup": ONE}, {}], devices=4))


@pytest.mark.slow
def test_sgd_trains_the_same(tmp_path):
    runs = [{"setup": s, "optimizer": "sgdm"} for s in (ONE, {})]
    assert_agree(*all_trained(tmp_path, runs, devices=2))


def test_what_does_not_fit_is_told_before_the_first_step(tmp_path):
    cases = {
        "batch of 6 images, 4 devices": {"batch_size": 6},
        "gradient_accumulation_steps=2": {"accumulate": 2},
        "devices=5; TensorFlow has 4": {"setup": {"mode": "data_parallel", "devices": 5}},
        "jit_compile=True": {"compile": {"jit_compile": True}},
        "steps_per_execution=2": {"compile": {"steps_per_execution": 2}},
        "which was made outside": {"outside": True},
    }
    errors = all_refused(tmp_path, list(cases.values()), devices=4)
    for message, error in zip(cases, errors, strict=True):
        assert message in error


def test_replicas_drop_other_units():
    """Two replicas with the same image and all else equal: their outputs differ by dropout."""
    code = """
import json
import numpy as np, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from keras_vit import distribution
from tests.support import tiny_vit
with distribution.setup() as devices:
    with devices.scope():
        model = tiny_vit(dropout=0.5, pool="mean")
        model.compile("sgd", "mse")
        devices.prepare(model)
        for v in model.trainable_variables:
            v.assign(np.random.default_rng(0).normal(size=v.shape))
    image = np.ones((1, 16, 16, 3), "float32")
    call = tf.function(lambda: devices.strategy.run(lambda: model(image, training=True)))
    rows = [[each.numpy().tolist() for each in call().values] for _ in range(2)]
print(json.dumps(rows))
"""
    first, second = np.array(json.loads(run_in_fresh_process(code).splitlines()[-1]))
    assert not np.allclose(first[0], first[1]) and not np.allclose(first[0], second[0])
