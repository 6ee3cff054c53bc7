"""Image classification data: reading, checking, augmenting, batching.

`load` reads a dataset into memory and checks it; `pipeline` makes batches of one for a recipe;
`preprocess` makes images what a model was trained on, `predict` names what images show.
"""

from keras_vit.data.augment import augmentation
from keras_vit.data.dataset import ImageDataset
from keras_vit.data.files import image_files
from keras_vit.data.input_pipeline import Pipeline, pipeline
from keras_vit.data.load import load
from keras_vit.data.naflex import naflex_inputs
from keras_vit.data.predict import Prediction, Value, predict
from keras_vit.data.preprocess import preprocess
from keras_vit.data.transform import Transform

__all__ = [
    "ImageDataset",
    "Pipeline",
    "Prediction",
    "Transform",
    "Value",
    "augmentation",
    "image_files",
    "load",
    "naflex_inputs",
    "pipeline",
    "predict",
    "preprocess",
]
