"""`setup` chooses the devices."""

import importlib

import keras

from keras_vit.checks import check_choice, positive_int
from keras_vit.distribution.devices import Devices, current, make_current

MODES = ("auto", "single", "data_parallel", "model_parallel", "fully_sharded")
_ENGINES = ("jax", "tensorflow", "torch")


def setup(
    mode: str = "auto",
    *,
    devices: int | None = None,
    model_devices: int | None = None,
    rules: dict[str, tuple[str | None, ...]] | None = None,
    timeout: int = 300,
) -> Devices:
    """Chooses the devices that this process trains on, before the first model is made.

    Several processes are joined if the environment names them; docs/distribution.md says how.

    Args:
        mode: `"single"`: one device. `"data_parallel"`: each device has the whole model and a part
            of each batch. `"model_parallel"`: groups of devices share a model, cut by
            `LAYOUT_RULES`, and a batch is cut over the groups. `"fully_sharded"`: a batch is cut
            over all devices, and so is each variable with its optimizer's state. `"auto"`:
            `"data_parallel"` if there is more than one device, else `"single"`.
        devices: how many devices to use; all by default.
        model_devices: with `"model_parallel"`, how many devices share a model; all by default.
        rules: with `"model_parallel"`, dict from the pattern of a variable's whole path to the
            mesh axis (`"model"` or `None`) of each of its axes, or `()` for not cut. They come
            before `LAYOUT_RULES`, and each must match a variable.
        timeout: seconds to wait for processes that do not come; with TensorFlow and PyTorch also
            for one that does not answer, which JAX gives up after 40 seconds at most.

    Returns:
        A `Devices`, in force until it is closed or the `with` block ends.

    Raises:
        ValueError: the backend has no such mode, there are not so many devices, or the arguments
            contradict each other.
        ConnectionError: the processes do not find each other; the message names the address.
    """
    check_choice("mode", mode, MODES)
    backend = keras.backend.backend()
    modes = MODES if backend == "jax" else MODES[:3] if backend in _ENGINES else MODES[:2]
    if mode not in modes:
        raise ValueError(
            f"The {backend} backend has no mode {mode!r}. Received: mode={mode!r}; take one of "
            f"{modes}, or JAX, which has {MODES}."
        )
    devices = None if devices is None else positive_int(devices, "devices")
    if mode != "model_parallel" and (model_devices is not None or rules is not None):
        raise ValueError(
            "model_devices and rules are for mode='model_parallel'. Received: "
            f"mode={mode!r}, model_devices={model_devices!r}, rules={rules!r}."
        )
    model_devices = model_devices and positive_int(model_devices, "model_devices")
    current().close()
    if mode == "single" or backend not in _ENGINES:
        chosen = Devices()
    else:
        engine = importlib.import_module(f"keras_vit.distribution.{backend}")
        chosen = engine.make(mode, devices, model_devices, rules, positive_int(timeout, "timeout"))
    make_current(chosen)
    return chosen
