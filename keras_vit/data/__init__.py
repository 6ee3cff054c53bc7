"""Image classification data: reading, checking, augmenting, batching.

`load` reads a dataset into memory and checks it, or makes it a `Pipeline` of batches for a
recipe; `preprocess` makes images what a model was trained on, `Batches` feeds arrays to `model.fit`
in an order that can be resumed, `predict` names what images show.
Importing this package loads Keras and NumPy only.
"""

from keras_vit.data.augment import Augmentation, affine, compose, flip, shift
from keras_vit.data.batches import Batches
from keras_vit.data.checks import check_dataset, check_images, check_labels
from keras_vit.data.dataset import ImageDataset
from keras_vit.data.pipeline import Pipeline
from keras_vit.data.predict import Prediction, predict
from keras_vit.data.preprocess import preprocess
from keras_vit.data.sources import load
from keras_vit.data.transform import Transform

__all__ = [
    "Augmentation",
    "Batches",
    "ImageDataset",
    "Pipeline",
    "Prediction",
    "Transform",
    "affine",
    "check_dataset",
    "check_images",
    "check_labels",
    "compose",
    "flip",
    "load",
    "predict",
    "preprocess",
    "shift",
]
