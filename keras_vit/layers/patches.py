"""An image as a sequence of flattened patches, and back (section 3.1)."""

import keras
from keras import ops

from keras_vit.checks import grid_of, known, pair
from keras_vit.layers.layer import Layer


@keras.saving.register_keras_serializable("keras_vit")
class Patches(Layer):
    """Cuts images into patches and flattens each: x -> x_p, N = HW / P² (section 3.1).

    The patches follow each other in reading order, rows first. Within a patch the values keep the
    order (row, column, channel) of the authors' patch kernels, so that a plain reshape of their
    kernel (P, P, C, D) is this library's matrix (P²·C, D).

    Shapes: (batch, height, width, channels) -> (batch, N, P²·C), or (batch, rows, columns, P²·C)
    with `keep_grid`, for images of any size.

    Args:
        patch_size: P, as an int or as (height, width).
        keep_grid: whether the patches stay in their rows and columns, which tells the layers
            that follow how large the image was.
        drop_incomplete: whether rows and columns that fill no patch are left out, as by a VALID
            convolution; otherwise they are an error.
    """

    def __init__(self, patch_size, keep_grid=False, drop_incomplete=False, **kwargs):
        super().__init__(**kwargs)
        self.patch_size = pair(patch_size, "patch_size")
        self.keep_grid, self.drop_incomplete = keep_grid, drop_incomplete

    def build(self, input_shape):
        is_image = len(input_shape) == 4 and input_shape[3] is not None
        if not is_image or (None in input_shape[1:3] and not self.keep_grid):
            raise ValueError(
                "Expected images of shape (batch, height, width, channels), channels last and with "
                f"known sizes. Received: shape {tuple(input_shape)}."
            )
        self._grid(input_shape)

    def call(self, images):
        self._grid(images.shape)  # an error where patches do not tile the images
        p_h, p_w = self.patch_size
        _, height, width, channels = ops.shape(images)
        rows, columns = height // p_h, width // p_w
        if self.drop_incomplete:
            images = images[:, : rows * p_h, : columns * p_w]
        x = ops.reshape(images, (-1, rows, p_h, columns, p_w, channels))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
        tokens = (rows, columns) if self.keep_grid else (rows * columns,)
        return ops.reshape(x, (-1, *tokens, p_h * p_w * channels))

    def _grid(self, images_shape):
        """(rows, columns), `None` for each that is not known yet."""
        sides = known(images_shape[1:3])
        size = [p if side is None else side for side, p in zip(sides, self.patch_size)]
        if self.drop_incomplete:
            size = [side // p * p for side, p in zip(size, self.patch_size)]
        grid = grid_of(size, self.patch_size)
        return tuple(None if side is None else n for side, n in zip(sides, grid))

    def inverse(self, patches, image_size):
        """The images of `image_size`, an int or (height, width), that `patches` were cut from.

        Shapes: (batch, N, P²·C) -> (batch, height, width, channels).
        """
        rows, columns = grid_of(image_size, self.patch_size)
        p_h, p_w = self.patch_size
        pixels, shape = p_h * p_w, tuple(patches.shape)
        if len(shape) != 3 or shape[1] != rows * columns or shape[2] % pixels:
            raise ValueError(
                f"Expected patches of shape (batch, {rows * columns}, a multiple of {pixels}) for "
                f"image_size={image_size}, patch_size={self.patch_size}. Received: shape {shape}."
            )
        channels = shape[2] // pixels
        x = ops.reshape(patches, (-1, rows, columns, p_h, p_w, channels))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
        return ops.reshape(x, (-1, rows * p_h, columns * p_w, channels))

    def compute_output_spec(self, images):
        rows, columns = self._grid(images.shape)
        p_h, p_w = self.patch_size
        tokens = (rows, columns) if self.keep_grid else (rows * columns,)
        return self._output((images.shape[0], *tokens, p_h * p_w * images.shape[3]))
