"""`setup`: one call for one device, many devices, or many hosts."""

import importlib

import keras

from keras_vit.checks import check_choice, positive_int
from keras_vit.distribution.devices import Devices, current, put_in_force

MODES = ("auto", "single", "data_parallel", "model_parallel", "fully_sharded")
_HAS = {  # backend -> the modes of its engine
    "jax": MODES,
    "tensorflow": ("auto", "single", "data_parallel"),
    "torch": ("auto", "single", "data_parallel"),
}


def setup(mode="auto", *, devices=None, model_devices=None, rules=None, timeout=300):
    """Chooses the devices that this process trains on, before the first model is made.

        with keras_vit.distribution.setup("data_parallel") as devices:
            with devices.scope():
                model = recipe.compile(keras_vit.ViT_B16(**recipe.model_options()))
            keras_vit.training.fit(model, train, "output", steps=recipe.steps)

    Args:
        mode: `"single"`: one device. `"data_parallel"`: each device has the whole model and a part
            of each batch. `"model_parallel"`: groups of devices share a model, cut by
            `LAYOUT_RULES`, and a batch is cut over the groups. `"fully_sharded"`: a batch is cut
            over all devices, and so is each variable with its optimizer's state. `"auto"`:
            `"data_parallel"` where there is more than one device, else `"single"`.
        devices: how many devices to use; all by default.
        model_devices: with `"model_parallel"`, how many devices share a model; all by default.
        rules: with `"model_parallel"`, dict from the pattern of a variable's whole path to the
            mesh axis (`"model"` or `None`) of each of its axes, or `()` for not cut. They come
            before `LAYOUT_RULES`; each must match a variable, and each variable one rule.
        timeout: seconds that the processes wait for each other at most, at the start and later.

    Returns:
        A `Devices`, in force until it is closed or the `with` block ends.

    Raises:
        ValueError: the backend has no such mode, there are not so many devices, or the arguments
            contradict each other.
        ConnectionError: the processes do not find each other; the message names the address.
    """
    check_choice("mode", mode, MODES)
    backend = keras.backend.backend()
    if mode not in _HAS.get(backend, ("auto", "single")):
        raise ValueError(
            f"The {backend} backend has no mode {mode!r}. Received: mode={mode!r}; it has "
            f"{_HAS.get(backend, ('auto', 'single'))}, and JAX has {_HAS['jax']}."
        )
    devices = None if devices is None else positive_int(devices, "devices")
    if mode != "model_parallel" and (model_devices is not None or rules is not None):
        raise ValueError(
            "model_devices and rules are for mode='model_parallel'. Received: "
            f"mode={mode!r}, model_devices={model_devices!r}, rules={rules!r}."
        )
    model_devices = model_devices and positive_int(model_devices, "model_devices")
    current().close()
    if mode == "single" or backend not in _HAS:
        return put_in_force(Devices())
    engine = importlib.import_module(f"keras_vit.distribution.{backend}")
    return put_in_force(engine.make(mode, devices, model_devices, rules, timeout))
