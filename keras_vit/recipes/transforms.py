"""The image pipelines of the three codebases, as values."""

from keras_vit.data.transform import Transform


def vit_jax(image_size):
    """Training and evaluation images of google-research/vision_transformer, input_pipeline.py.

    Returns:
        Two `Transform`: a random box of 5 to 100 % of the image, mirrored half of the time; and
        the whole image, resized without regard to its aspect ratio.
    """
    return Transform(image_size, "inception", flip=True), Transform(image_size, "squash")


def big_vision(image_size, crop="inception_crop", randaugment=None):
    """Training and evaluation images of google-research/big_vision, configs/transfer.py.

    Args:
        image_size: side in pixels: 224 as in pre-training, or 384.
        crop: its name there: `"inception_crop"` or `"resmall_crop"`.
        randaugment: (operations, magnitude), or `None`.

    Returns:
        Two `Transform`; windows are cut from images whose shorter side is 256 or 448 pixels.
    """
    small = {224: 256, 384: 448}[image_size]
    rounded = {"round_to_uint8": True, "randaugment": randaugment, "flip": True}
    if crop == "inception_crop":
        train = Transform(image_size, "inception", **rounded)
    else:
        train = Transform(
            image_size,
            "resize_small_random",
            resize_small=small,
            interpolation="area",
            **rounded,
        )
    evaluated = Transform(
        image_size,
        "resize_small_center",
        resize_small=small,
        interpolation="area",
        round_to_uint8=True,
    )
    return train, evaluated
