"""Image classification data: reading, checking, augmenting, batching.

`load` reads a dataset into memory and checks it, `preprocess` makes images what a model was
trained on, `Batches` feeds `model.fit` in an order that can be resumed, `predict` names what
images show.
Importing this package loads Keras and NumPy only.
"""

from keras_vit.data.augment import Augmentation, affine, compose, flip, shift
from keras_vit.data.batches import Batches
from keras_vit.data.checks import check_dataset, check_images, check_labels
from keras_vit.data.dataset import ImageDataset
from keras_vit.data.predict import Prediction, predict
from keras_vit.data.preprocess import preprocess
from keras_vit.data.sources import load

__all__ = [
    "Augmentation",
    "Batches",
    "ImageDataset",
    "Prediction",
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
