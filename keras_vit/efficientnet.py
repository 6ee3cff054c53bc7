"""EfficientNet-L2, the fourth system of the paper's Table 2 (Noisy Student), for comparison."""

import inspect
import os
import pathlib
import sys

import keras

from keras_vit.checks import pair
from keras_vit.preprocessing import Preprocessing

WIDTH, DEPTH, RESOLUTION = 4.3, 5.3, 800
# The mean and deviation of ImageNet's colours, and 255 times that, as Keras's network begins with
# a division by 255.
PREPROCESSING = Preprocessing(
    mean=(0.485, 0.456, 0.406),
    std=(0.229 / 255, 0.224 / 255, 0.225 / 255),
    resize="shortest",
    crop_fraction=0.96,
    interpolation="bicubic",
    library="tensorflow",
)


def EfficientNet_L2(
    num_classes: int = 1000,
    image_size: int = RESOLUTION,
    weights: str | os.PathLike[str] | None = None,
    include_top: bool = True,
) -> keras.Model:
    """EfficientNet-L2 (Xie et al., 2020), as Keras's own EfficientNet with the published factors.

    480,309,308 trained parameters with 1000 classes. The authors trained at 475 pixels and
    fine-tuned at 800. `keras_vit` lists no checkpoint of it.

    Args:
        num_classes: number of logits; 0 for none.
        image_size: int or (height, width), in pixels.
        weights: `None`, or the path of a file that Keras wrote with `save_weights`.
        include_top: `False` for the pooled features instead of logits.

    Returns:
        A `keras.Model` of images that `keras_vit.preprocess(images, model)` made.

    Raises:
        ValueError: `weights` is the path of no file.
    """
    if weights is not None and not pathlib.Path(weights).is_file():
        raise ValueError(
            "weights must be None or the path of a file written by Keras's save_weights. "
            f"Received: weights={weights!r}."
        )
    classes, limit = num_classes if include_top else 0, sys.getrecursionlimit()
    # The function behind EfficientNetB0 to B7, which alone Keras exports.
    build = inspect.getmodule(keras.applications.EfficientNetB0).EfficientNet
    options = {"classes": classes or 1000, "pooling": "avg", "classifier_activation": None}
    options |= {"input_shape": (*pair(image_size, "image_size"), 3), "name": "efficientnet_l2"}
    options["dropout_rate"] = 0.5
    # Keras walks a graph by recursion, and Python's usual limit is below its 1,305 layers.
    sys.setrecursionlimit(max(limit, 10_000))
    try:
        model = build(WIDTH, DEPTH, RESOLUTION, include_top=classes > 0, weights=None, **options)
    finally:
        sys.setrecursionlimit(limit)
    model.preprocessing = PREPROCESSING
    if weights is not None:
        model.load_weights(weights)
    return model
