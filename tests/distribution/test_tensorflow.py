"""Four logical CPUs of TensorFlow under a MirroredStrategy: what one device computes."""

import json

import numpy as np
import pytest

from tests.distribution.processes import all_trained, assert_agree, assert_refused
from tests.support import BACKEND, run_in_fresh_process

pytestmark = pytest.mark.skipif(BACKEND != "tensorflow", reason="TensorFlow's devices")

ONE = {"mode": "single"}


@pytest.mark.parametrize(
    "devices, options",
    [
        (2, {}),
        pytest.param(4, {}, marks=pytest.mark.slow),
        pytest.param(2, {"optimizer": "sgdm"}, marks=pytest.mark.slow),
    ],
)
def test_more_devices_train_the_same(devices, options, tmp_path):
    """With clipping by the norm of all gradients, an average, and an uneven last batch."""
    one, many = all_trained(tmp_path, [{"setup": ONE, **options}, options], devices)
    assert_agree(one, many)
    assert options or min(one["history/gradient_norm"]) > 0.5  # so that clipping took part


def test_what_does_not_fit_is_told_before_the_first_step(tmp_path):
    cases = {
        "batch of 6 images, 4 devices": {"batch_size": 6},
        "gradient_accumulation_steps=2": {"accumulate": 2},
        "devices=5; there are 4": {"setup": {"mode": "data_parallel", "devices": 5}},
        "jit_compile=True": {"compile": {"jit_compile": True}},
        "steps_per_execution=2": {"compile": {"steps_per_execution": 2}},
        "which was made outside": {"outside": True},
        "SGD with clipping": {"clipped_by_keras": True},
    }
    assert_refused(tmp_path, cases, devices=4)


def test_replicas_drop_other_units_and_clip_together():
    """And Keras itself still does neither, so that the workarounds are still needed."""
    code = """
import tests.bare
import json
import keras, numpy as np, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from keras_vit import distribution, training
from tests.support import tiny_vit
with distribution.setup() as devices:
    run = devices.strategy.run
    with devices.scope():
        model = tiny_vit(dropout=0.5, pool="mean")
        model.compile("sgd", "mse")
        for v in model.trainable_variables:
            v.assign(np.random.default_rng(0).normal(size=v.shape))
    image = np.ones((1, 16, 16, 3), "float32")
    def outputs():
        call = tf.function(lambda: run(lambda: model(image, training=True)))
        return [each.numpy().tolist() for each in call().values]
    rows = [outputs()]
    (callback,) = devices.callbacks()
    callback.set_model(model)
    callback.on_train_begin()
    rows += [outputs(), outputs()]
    moved = []
    for optimizer_class in (keras.optimizers.SGD, training.SGDM):
        with devices.scope():
            variable, optimizer = keras.Variable(0.0), optimizer_class(1.0, global_clipnorm=1.0)
            optimizer.build([variable])
        def update():
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            optimizer.apply([tf.cast(3 + replica, "float32")])
        run(update)
        moved.append(float(variable.numpy()))
print(json.dumps([rows, moved]))
"""
    rows, (by_keras, by_us) = json.loads(run_in_fresh_process(code).splitlines()[-1])
    of_keras, first, second = np.array(rows)
    np.testing.assert_array_equal(of_keras[0], of_keras[1])
    assert not np.allclose(first[0], first[1]) and not np.allclose(first[0], second[0])
    assert by_keras == pytest.approx(-2) and by_us == pytest.approx(-1)


def test_replicas_of_a_process_share_its_part():
    """In the order of the whole batch: each replica gets one part in each step."""
    from keras_vit.distribution.tensorflow import TensorFlowDevices, dataset_of

    class FourReplicas:
        """Stands for the strategy of two processes with two GPUs each: a CPU is one replica."""

        num_replicas_in_sync = 4

        def distribute_datasets_from_function(self, function):
            return function(None)

    part = np.arange(8).reshape(4, 2), np.arange(4, 8)
    devices = TensorFlowDevices(FourReplicas(), 1, 2)
    dataset = dataset_of(lambda: [part], example=part, devices=devices)
    labels = [labels.tolist() for _, labels in dataset.as_numpy_iterator()]
    assert labels == [[4, 5], [6, 7]]
