# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # What changes when several devices train one model?
#
# ViT-H/14 has 632 million parameters. In float32 they and the two moments of Adam take 7.6 GB, and
# the paper's batch of 4096 images takes far more. So each device gets a part of the batch, of the
# model, or of both. At the end you will know which part, in every mode of
# `keras_vit.distribution.setup`, and have seen that the losses do not change.
#
# No accelerator is needed. One CPU can pose as several devices; it gains no time by that, but it
# computes what several devices would, with the same code. JAX has all modes, TensorFlow and PyTorch
# have data parallelism, so this notebook shows most on JAX.

# %%
import os

os.environ.setdefault("KERAS_BACKEND", "jax")  # or "tensorflow", or "torch"
import contextlib
import inspect
import json
import pathlib
import subprocess
import sys
import tempfile

import matplotlib.pyplot as plt
import numpy as np

# %% [markdown]
# ## Several devices of one CPU
#
# JAX reads a variable of the environment when it starts. TensorFlow cuts a device into logical ones
# before it first computes. PyTorch has one process for each device, started further down.

# %%
virtual = "--xla_force_host_platform_device_count=4"  # read when jax starts
os.environ["XLA_FLAGS"] = f"{virtual} {os.environ.get('XLA_FLAGS', '')}".strip()
import keras

BACKEND = keras.backend.backend()
DEVICES = {"jax": 4, "tensorflow": 2, "torch": 2}[BACKEND]

if BACKEND == "tensorflow":
    import tensorflow as tf

    parts = [tf.config.LogicalDeviceConfiguration()] * DEVICES
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, parts)
    tf.get_logger().setLevel("ERROR")  # not a line for every sum over devices

# %%
import keras_vit
from keras_vit.training import set_random_seed

plt.rcParams["figure.dpi"] = 80
print(f"{DEVICES} devices with {BACKEND}")

# %% [markdown]
# ## One function for every mode
#
# The recipe is that of the handwritten digits, with one block, for three passes through 1,438
# images. Its batch is the *global* one: 64 images to an update, on however many devices.
#
# Adam divides each gradient by its own size: where it is zero but for rounding, the step has full
# length all the same. A larger ε prevents that, so that we compare devices and not rounding.


# %%
def make_recipe():
    recipe = keras_vit.recipes.get("digits").scale(steps=66)  # 22 make an epoch
    return recipe.replace(warmup_steps=8, epsilon=1e-3)


recipe = make_recipe()
print(f"{recipe.steps} updates of {recipe.batch_size} images, {recipe.optimizer}")

# %% [markdown]
# `setup` chooses the devices, the model is made and compiled within `devices.scope()`, and training
# stays what it was. Nothing else in this function knows how many devices there are.


# %%
def train(mode, folder, **options):
    """Trains on the devices of a mode; what came out of it, as values that JSON can hold."""
    recipe = make_recipe()
    set_random_seed(recipe.seed)
    with keras_vit.distribution.setup(mode, **options) as devices:
        with devices.scope():
            model = keras_vit.VisionTransformer(**recipe.model_options() | {"depth": 1})
            recipe.compile(model)
        digits = keras_vit.data.pipeline("digits", recipe)
        with contextlib.redirect_stdout(None):  # it tells how it goes on
            history = keras_vit.training.fit(
                model, digits, folder, steps=recipe.steps, curves=False
            )
        variables = [*model.trainable_variables, *model.optimizer.variables]
        return {
            "loss": history["loss"],
            "weights": np.concatenate([w.ravel() for w in model.get_weights()]).tolist(),
            "images": recipe.batch_size // devices.replicas,
            "held": {v.path: held(v, devices.process) for v in variables},
        }


# %% [markdown]
# The backend knows what lies on which device: a JAX array its shards, a mirrored variable of
# TensorFlow its copies. With PyTorch each process has variables of its own.


# %%
def held(variable, process=0):
    """Device -> where the part that lies on it begins and ends, along each axis."""
    value, shape = variable.value, tuple(variable.shape)
    whole = tuple(slice(0, side) for side in shape)
    if keras.backend.backend() == "jax":
        found = {shard.device.id: shard.index for shard in value.addressable_shards}
    elif keras.backend.backend() == "tensorflow":
        found = {i: whole for i, _ in enumerate(getattr(value, "values", [value]))}
    else:
        found = {process: whole}
    cut = {i: [s.indices(n)[:2] for s, n in zip(index, shape)] for i, index in found.items()}
    return {str(device): [list(ends) for ends in index] for device, index in cut.items()}


# %% [markdown]
# With PyTorch, `torchrun` starts the processes, which run a script made of the functions above.


# %%
JOB = """import contextlib, json, os, sys
import keras
import numpy as np
import keras_vit
from keras_vit.training import set_random_seed

FUNCTIONS

mode, folder = sys.argv[1:]
result = train(mode, folder + "/run")
with open(folder + "/" + os.environ["RANK"], "w") as file:
    json.dump(result, file)
"""


# %%
def train_in_processes(mode, folder):
    """`train` in a process for each device; what it returns in the first."""
    functions = "\n\n".join(inspect.getsource(f) for f in (make_recipe, held, train))
    script = folder / "job.py"
    script.write_text(JOB.replace("FUNCTIONS", functions))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*torchrun, f"--nproc-per-node={DEVICES}", str(script), mode, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    results = [json.loads((folder / str(rank)).read_text()) for rank in range(DEVICES)]
    for path, found in results[0]["held"].items():
        found.update(results[1]["held"][path])
    return results[0]


# %% [markdown]
# ## Train in every mode
#
# `"data_parallel"` cuts the batch. `"model_parallel"` cuts the model as well: here two groups of
# two devices, where each group has half of the batch and each device half of the model.
# `"fully_sharded"` cuts the batch, and every variable in as many parts as there are devices; before
# a layer computes, its parts are brought together, and given up again afterwards.

# %%
MODES = {"single": {}, "data_parallel": {}}
if BACKEND == "jax":
    MODES |= {"model_parallel": {"model_devices": 2}, "fully_sharded": {}}

results = {}
with tempfile.TemporaryDirectory() as folder:
    for mode, options in MODES.items():
        run = pathlib.Path(folder) / mode
        run.mkdir()
        if BACKEND == "torch" and mode != "single":
            results[mode] = train_in_processes(mode, run)
        else:
            results[mode] = train(mode, run, **options)

# %% [markdown]
# ## The same losses
#
# The loss of each epoch, and how far losses and weights are from those of one device at most.

# %%
one = results["single"]
weights = np.array(one["weights"])

epochs = "".join(f"{f'epoch {i + 1}':>10}" for i, _ in enumerate(one["loss"]))
print(f"{'mode':<16}{epochs}{'apart by':>11}{'weights by':>12}")
for mode, result in results.items():
    loss_apart = np.abs(np.subtract(result["loss"], one["loss"])).max()
    weight_apart = np.abs(result["weights"] - weights).max()
    losses = "".join(f"{loss:>10.6f}" for loss in result["loss"])
    print(f"{mode:<16}{losses}{loss_apart:>11.0e}{weight_apart:>12.0e}")

print(f"\n{weights.size} weights, the largest {np.abs(weights).max():.2f}")

# %% [markdown]
# The losses agree to about as many digits as float32 has. What remains is the order in which
# numbers are added: several devices sum the gradients of their own images first. The differences go
# through every later update, so they grow with the length of a run.
#
# ## What each device holds
#
# The first kernel of the MLP maps 64 numbers of a token to 256. In every mode, each device has the
# coloured part of it.

# %% tags=["cover"] caption="The part of one kernel that each of four devices holds, by mode"
PATH = "block_0/mlp/dense_1/kernel"
shape = (64, 256)
figure, axes = plt.subplots(
    len(results), DEVICES, figsize=(2.3 * DEVICES + 1, 1.1 * len(results) + 0.9), squeeze=False
)
for row, (mode, result) in zip(axes, results.items()):
    row[0].set_ylabel(mode.replace("_", "\n"), rotation=0, ha="right", va="center")
    for device, ax in enumerate(row):
        part, lies = np.zeros(shape), result["held"][PATH].get(str(device))
        if lies:
            part[tuple(slice(*ends) for ends in lies)] = device + 1
        colours = dict(cmap="tab10", vmin=1, vmax=10, alpha=0.7)
        there = np.ma.masked_equal(part, 0)
        ax.imshow(there, extent=(0, 256, 64, 0), aspect="auto", interpolation="none", **colours)
        ax.set(xticks=[], yticks=[], facecolor="0.93")
        ax.text(128, 32, f"{part.astype(bool).mean():.0%}", ha="center", va="center")
for device, ax in enumerate(axes[0]):
    ax.set_title(f"device {device}", fontsize=10)
for ax in axes[-1]:
    ax.set_xlabel("256 hidden units", fontsize=8)
figure.suptitle(f"{PATH}, 64 x 256: the part on each device")
plt.tight_layout()
plt.show()

# %% [markdown]
# And all variables together, with both moments of Adam, beside the images of each update that a
# device computes.


# %%
def kilobytes(result, device):
    sizes = [
        np.prod([last - first for first, last in lies[device]])
        for lies in result["held"].values()
        if device in lies
    ]
    return 4 * sum(sizes) / 1000


print(f"{'mode':<16}{'images on device 0':>20}{'kB on device 0':>17}{'of one device':>16}")
for mode, result in results.items():
    size = kilobytes(result, "0")
    share = size / kilobytes(one, "0")
    print(f"{mode:<16}{result['images']:>20}{size:>17.0f}{share:>16.0%}")

# %% [markdown]
# Data parallelism saves no memory for variables. Where a model does not fit on a device, JAX's
# other two modes cut it.
#
# `"model_parallel"` follows `keras_vit.distribution.LAYOUT_RULES`: attention is cut by heads and
# the MLP by hidden units, so that a block needs only two sums over the devices in each direction.
# Norms stay whole. These rules apply to our block:

# %%
for pattern, axes_cut in keras_vit.distribution.LAYOUT_RULES.items():
    if "attention" in pattern or "mlp" in pattern:
        print(f"{pattern:<54}{axes_cut}")

# %% [markdown]
# ## What does not fit is refused
#
# Three devices cannot share what is there. `setup` says so before a model is made.

# %%
try:
    keras_vit.distribution.setup("model_parallel", model_devices=3)
except ValueError as error:
    print(error)

# %% [markdown]
# ## Answer
#
# The recipe, the model and `fit` stay as they are; `setup` decides which part of the batch and of
# the variables lies where. The losses are those of one device, up to the order in which numbers are
# added. `"data_parallel"` cuts the work, `"model_parallel"` and `"fully_sharded"` the memory too.
#
# Read on: [docs/distribution.md](../docs/distribution.md) has the commands for real devices, for
# several hosts, what happens when a process fails, and rules for layers of your own. The same modes
# are flags of the main job: `python tutorials/train.py --distribute data_parallel`. The rules are
# those of Shoeybi et al., [Megatron-LM](https://arxiv.org/abs/1909.08053).
