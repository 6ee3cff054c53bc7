"""Fine-tuning on images of one's own, of which there may be few."""

from keras_vit.checks import pair, positive_int
from keras_vit.data.transform import Transform
from keras_vit.recipes.paper import LOW
from keras_vit.recipes.recipe import Recipe

UPDATES_AN_EPOCH = 8  # at least, as long as there are so many images
# Up to so many images: updates and warm-up, those of Table 4 for sets of this size.
LENGTHS = ((20_000, 500, 100), (500_000, 10_000, 500), (float("inf"), 20_000, 500))


def own_images(num_examples, num_classes=None, variant=None, image_size=224):
    """Fine-tuning of a pre-trained model on a folder of one's own, of a few dozen images or more.

    It is Table 4 with what a small set asks for: a batch of which at least eight make an epoch,
    images that keep their aspect ratio, and crops that keep most of an image, because nothing is
    known about what it shows. `recipe.learning_rates` are those to choose from with validation
    images, as the authors do.

        found = keras_vit.data.load("photos", image_size=224)
        recipe = keras_vit.recipes.own_images(len(found.train_images), found.num_classes)

    Args:
        num_examples: training images.
        num_classes: K, or `None`.
        variant: the model, or `None`.
        image_size: int or (height, width) in pixels.

    Returns:
        A `Recipe`; its data set is `"folder"`, to be replaced by the folder's name.

    Raises:
        ValueError: a number is not positive, or no such variant.
    """
    count, size = positive_int(num_examples, "num_examples"), pair(image_size, "image_size")
    batch_size = 512
    while batch_size > 1 and batch_size * UPDATES_AN_EPOCH > count:
        batch_size //= 2
    steps, warmup = next(row[1:] for row in LENGTHS if count < row[0])
    return Recipe(
        name=f"own-{count}" + (f"-{variant}" if variant else ""),
        source="keras_vit's own, after Dosovitskiy et al., 2021, Table 4",
        notes=("The learning rate is that of Table 4's small sets; it was not tuned for yours.",),
        dataset="folder",
        variant=variant,
        examples=count,
        num_classes=num_classes,
        batch_size=batch_size,
        steps=steps,
        train=Transform(size, "inception", area=(0.25, 1.0), flip=True),
        eval=Transform(size, "resize_small_center", resize_small=round(max(size) * 256 / 224)),
        optimizer="sgdm",
        learning_rate=0.003,
        learning_rates=LOW,
        schedule="cosine",
        warmup_steps=warmup,
        clip_norm=1.0,
    )
