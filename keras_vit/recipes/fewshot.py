"""The few-shot protocol of the paper, as a value."""

import dataclasses

from keras_vit.preprocessing import Preprocessing


@dataclasses.dataclass(frozen=True)
class FewShotProtocol:
    """Linear regression on frozen features, from a few images per class (section 4.1).

    Attributes:
        source: where it is written.
        datasets: TFDS names that the authors' code evaluates.
        shots: images per class.
        seeds: of the draws of these images; results are averaged over them.
        l2: λ of (XᵀX + λI)⁻¹Xᵀy, the same for every data set.
        features: the layer that gives X, `"pre_logits"`: what the linear head sees.
        constant: value of the feature that stands for the bias, so large that λ leaves it alone.
        epsilon: added to the standard deviations that the features are divided by.
        image_size: (height, width) of the images in pixels.
        preprocessing: of the images, for `keras_vit.data.preprocess` or a model's `preprocessing`.
    """

    source: str
    datasets: tuple[str, ...]
    shots: tuple[int, ...]
    seeds: tuple[int, ...]
    l2: float
    features: str
    constant: float
    epsilon: float
    image_size: tuple[int, int]
    preprocessing: Preprocessing


def fewshot():
    """The protocol of `FewShotProtocol` with the authors' numbers.

        protocol = keras_vit.recipes.fewshot()
        model.preprocessing = protocol.preprocessing  # how `evaluation` reads images
        keras_vit.evaluation.fewshot(model, train, test, shots=protocol.shots)

    Their `resize(256)|central_crop(224)` squashes an image to 256 x 256, whatever its aspect ratio,
    makes whole grey levels of it, and takes the middle.
    """
    return FewShotProtocol(
        source="Dosovitskiy et al., 2021, section 4.1; google-research/big_vision, "
        "evaluators/fewshot_lsr.py and configs/common_fewshot.py",
        datasets=(
            "caltech101",
            "cars196:2.1.0",
            "cifar100",
            "dtd",
            "oxford_iiit_pet",
            "uc_merced",
        ),
        shots=(1, 5, 10, 25),
        seeds=(0, 1, 2),
        l2=1024.0,
        features="pre_logits",
        constant=100.0,
        epsilon=1e-5,
        image_size=(224, 224),
        preprocessing=Preprocessing(crop_fraction=224 / 256, library="tensorflow_uint8"),
    )
