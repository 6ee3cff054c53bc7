"""Batches for `model.fit`, in an order that can be resumed."""

import operator

import keras
import numpy as np

from keras_vit.data.preprocess import preprocess

# Distinct leading words keep the two random streams apart whatever the other words are.
_ORDER, _AUGMENT = 1, 2


class Batches(keras.utils.PyDataset):
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

    Leave `steps_per_epoch` alone if the order matters on TensorFlow, which reads ahead
    into the next epoch. Loading stays in one thread: with more, Keras rotates the batches.

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
        super().__init__()
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
        self._epoch = _whole(start_epoch, "start_epoch", at_least=0)
        self._order = None  # (epoch, order of the examples in it)
        # While Keras runs an epoch: which batch each number it asked for has received.
        self._served = None
        self._closing_is_no_epoch = False

    @property
    def epoch(self):
        """The epoch whose batches come next, counted from 0."""
        return self._epoch

    def set_epoch(self, epoch):
        """Makes `epoch` the one whose batches come next, from its first batch on."""
        self._epoch = _whole(epoch, "epoch", at_least=0)
        self._served = None

    def __len__(self):
        full, rest = divmod(len(self.images), self.batch_size)
        return full if self.drop_remainder or not rest else full + 1

    def __getitem__(self, index):
        index = operator.index(index)
        if not 0 <= index < len(self):
            raise IndexError(f"Batch {index} is outside 0..{len(self) - 1}.")
        if self._served is not None:
            # The k-th batch number that Keras asks for gets batch k: see the class.
            index = self._served.setdefault(index, len(self._served))
        rows = self._rows(index)
        images = self.images[rows]
        if self.augment is not None:
            images = self._augmented(images, index)
        return preprocess(images), self.labels[rows]

    def _rows(self, index):
        """Where the examples of a batch lie in the arrays."""
        window = slice(index * self.batch_size, (index + 1) * self.batch_size)
        if not self.shuffle:
            return window
        if self._order is None or self._order[0] != self._epoch:
            rng = np.random.default_rng([_ORDER, self._epoch, 0, self.seed])
            self._order = (self._epoch, rng.permutation(len(self.images)))
        return self._order[1][window]

    def _augmented(self, images, index):
        rng = np.random.default_rng([_AUGMENT, self._epoch, index, self.seed])
        augmented = np.asarray(self.augment(images, rng))
        if augmented.shape != images.shape or augmented.dtype != images.dtype:
            raise ValueError(
                f"augment must keep the shape {images.shape} and dtype {images.dtype} of its "
                f"images. Received: shape {augmented.shape}, dtype {augmented.dtype}"
            )
        return augmented

    # Keras calls on_epoch_end once more than there are epochs: `fit` and `evaluate` first
    # build the model from a batch or two and then reset. How many batches they fetch for
    # it, and whether they call on_epoch_begin, differs by backend and by what is already
    # built. What they share is that wrapping a dataset reads `workers`, once, beforehand.

    @property
    def workers(self):
        """Always 1: the number of threads that Keras may load batches with."""
        if self._served is None:
            self._closing_is_no_epoch = True
        return 1

    def on_epoch_begin(self):
        """Called by Keras before the batches of an epoch."""
        self._served = {}

    def on_epoch_end(self):
        """Advances to the next epoch. Call it yourself when iterating without Keras."""
        self._served = None
        if self._closing_is_no_epoch:
            self._closing_is_no_epoch = False
        else:
            self._epoch += 1


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
