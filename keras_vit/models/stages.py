"""The convolutional trunk that hybrids and BiT share: a root, then stages of bottleneck units."""

from keras_vit.layers.resnet import Bottleneck, Root

ROOT_FILTERS = 64


def resnet_stages(x, blocks, width, version, numerics, folded, policy):
    """Adds a ResNet without its head to a Functional graph.

    Layers are called `root` and `stage_1_unit_1`, `stage_1_unit_2` and so on. The root has stride
    4, the first stage 1, each other one 2 in its first unit; stages have 256, 512, 1024 and 2048
    channels times `width`.

    Args:
        x: images, shape (batch, height, width, channels).
        blocks: number of units of each stage, such as (3, 4, 6, 3); empty for the root alone.
        width: factor of all channels.
        version: `"v1"`, post-activation, or `"v2"`, pre-activation.
        numerics: a name of `keras_vit.layers.standardize.NUMERICS`.
        folded: whether the kernels are standardised already.
        policy: dtype policy of the layers.

    Returns:
        The feature map.
    """
    filters, choices = int(ROOT_FILTERS * width), (version, numerics, folded)
    x = Root(filters, *choices, dtype=policy, name="root")(x)
    for stage, units in enumerate(blocks):
        for unit in range(units):
            strides = 2 if stage and not unit else 1
            name = f"stage_{stage + 1}_unit_{unit + 1}"
            x = Bottleneck(filters * 2**stage, strides, *choices, dtype=policy, name=name)(x)
    return x
