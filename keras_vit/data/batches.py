"""Batches for `model.fit`, in an order that can be resumed."""

import numpy as np

from keras_vit.data.keras_passes import Passes
from keras_vit.data.preprocess import preprocess

# Distinct leading words keep the two random streams apart whatever the other words are.
_ORDER, _AUGMENT = 1, 2


class Batches(Passes):
    """Feeds preprocessed batches to `fit`, `evaluate` and `predict`.

    The order of the examples depends only on (seed, epoch) and the augmentation only on
    (seed, epoch, batch number). Two runs with one seed see the same batches, on any
    backend, and a run resumed with `start_epoch=k` sees what the uninterrupted run saw
    from epoch k on. This holds with the `shuffle=True` that is `fit`'s default: Keras
    permutes the batch numbers with Python's global generator, and that permutation is
    undone here.

    Keras does not say which epoch it is in, so the epochs are counted. Where the number
    must come from Keras itself (`BackupAndRestore`, or one object for several purposes):

        keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, _: batches.set_epoch(epoch))

    An epoch that `fit` does not finish counts as one. With `steps_per_epoch` an epoch of Keras is
    only a part of one here: the next goes on in it. Loading stays in one thread: with more, Keras
    rotates the batches.

    Args:
        images: uint8 in 0..255 or float in [0, 1], shape (images, height, width, channels).
        labels: whole numbers, shape (images,).
        batch_size: images per batch.
        shuffle: whether to draw a new order of the examples each epoch.
        augment: an `Augmentation`, or None.
        seed: non-negative int that decides order and augmentation.
        drop_remainder: whether to leave out the last batch if it is not full.
        start_epoch: the epoch that comes first, counted from 0.

    Each item is (images, labels): float32 in [-1, 1] of shape (batch, height, width,
    channels), and int32 of shape (batch,).

    Raises:
        ValueError: an argument out of range, arrays that do not fit together, no image, or
            `drop_remainder` with fewer images than one batch.
    """

    def __init__(
        self,
        images,
        labels,
        batch_size,
        *,
        shuffle=False,
        augment=None,
        seed=0,
        drop_remainder=False,
        start_epoch=0,
    ):
        super().__init__(0)
        self.images, self.labels = _check_arrays(images, labels)
        self.batch_size = _whole(batch_size, "batch_size", at_least=1)
        self.shuffle = bool(shuffle)
        if augment is not None and not callable(augment):
            raise ValueError(
                f"augment must be callable as augment(images, rng), or None. Received: {augment!r}"
            )
        self.augment = augment
        self.seed = _whole(seed, "seed", at_least=0)
        self.drop_remainder = bool(drop_remainder)
        if self.drop_remainder and len(self.images) < self.batch_size:
            raise ValueError(
                "drop_remainder=True leaves nothing of fewer images than one batch. Received: "
                f"{len(self.images)} images, batch_size={self.batch_size}; lower batch_size or "
                "keep the remainder"
            )
        self._order = None  # (epoch, order of the examples in it)
        self._start = _whole(start_epoch, "start_epoch", at_least=0) * len(self)

    @property
    def epoch(self):
        """The epoch whose batches come next, counted from 0."""
        return self._start // len(self)

    def set_epoch(self, epoch):
        """Makes `epoch` the one whose batches come next, from its first batch on."""
        self._start = _whole(epoch, "epoch", at_least=0) * len(self)
        self._served = None

    def __len__(self):
        full, rest = divmod(len(self.images), self.batch_size)
        return full if self.drop_remainder or not rest else full + 1

    num_batches = property(__len__)

    def after(self, served):
        return (self.epoch + 1) * len(self)

    def rows(self, step):
        """Where the examples of a step, counted from epoch 0, lie in the arrays."""
        epoch, index = divmod(step, len(self))
        window = slice(index * self.batch_size, (index + 1) * self.batch_size)
        if not self.shuffle:
            return window
        if self._order is None or self._order[0] != epoch:
            rng = np.random.default_rng([_ORDER, epoch, 0, self.seed])
            self._order = (epoch, rng.permutation(len(self.images)))
        return self._order[1][window]

    def batch(self, step):
        rows = self.rows(step)
        images = self.images[rows]
        if self.augment is not None:
            images = self._augmented(images, step)
        return preprocess(images), self.labels[rows]

    def _augmented(self, images, step):
        rng = np.random.default_rng([_AUGMENT, *divmod(step, len(self)), self.seed])
        augmented = np.asarray(self.augment(images, rng))
        if augmented.shape != images.shape or augmented.dtype != images.dtype:
            raise ValueError(
                f"augment must keep the shape {images.shape} and dtype {images.dtype} of its "
                f"images. Received: shape {augmented.shape}, dtype {augmented.dtype}"
            )
        return augmented


def _check_arrays(images, labels):
    images, labels = np.asarray(images), np.asarray(labels)
    if images.ndim != 4 or images.size == 0:
        raise ValueError(
            "images must have shape (images, height, width, channels) and not be empty. "
            f"Received: shape {images.shape}"
        )
    if images.dtype != np.uint8 and images.dtype.kind != "f":
        raise ValueError(
            f"images must be uint8 in 0..255 or float in [0, 1]. Received: dtype {images.dtype}"
        )
    if labels.dtype.kind not in "iu" or labels.shape != images.shape[:1]:
        raise ValueError(
            f"labels must be whole numbers of shape ({len(images)},), one per image; see "
            f"check_labels. Received: shape {labels.shape}, dtype {labels.dtype}"
        )
    return images, labels.astype(np.int32)


def _whole(value, name, at_least):
    """Returns `value` as an int, or raises ValueError."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"{name} must be a whole number >= {at_least}. Received: {value!r}")
    if value < at_least:
        raise ValueError(f"{name} must be a whole number >= {at_least}. Received: {value!r}")
    return int(value)
