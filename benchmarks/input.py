"""Times decoding and augmentation of JPEGs: this package's pipelines, tf.data, PyTorch's loader.

    python benchmarks/input.py [--images 512] [--seconds 8] [--repeats 3]

Every contender reads the same files (500 x 375 pixels, quality 90), takes an inception crop of 224
pixels, flips half of the images and gives float32 batches of 64, with two workers. Each runs in a
process of its own; they take turns, and medians count. Nothing else should keep the machine busy.
"""

import argparse
import functools
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import types

import tables

SIZE, BATCH, WORKERS = 224, 64, 2


def make_images(folder, count, size=(500, 375)):
    """Photographs in two class folders, each cut elsewhere so that no two files are alike."""
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_sample_images

    rng = np.random.default_rng(0)
    photographs = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    for index in range(count):
        photograph = photographs[index % len(photographs)]
        left, top = rng.integers(0, 100, 2)
        cut = photograph.crop((left, top, left + 540, top + 327)).resize(size)
        place = pathlib.Path(folder) / str(index % 2)
        place.mkdir(exist_ok=True)
        cut.save(place / f"{index:05d}.jpg", quality=90)


def endless_batches(folder, batch_size=BATCH, training=True, threads=None, workers=0):
    """Batches of `keras_vit.data.pipeline`, epoch after epoch, all of the same size."""
    from keras_vit import data

    recipe = types.SimpleNamespace(micro_batch_size=batch_size, seed=0, mixup=0.0, cutmix=0.0)
    recipe.augment_layers = ()
    recipe.train = data.Transform((SIZE, SIZE), crop="inception", flip=True)
    recipe.eval = data.Transform((SIZE, SIZE), resize_small=256, crop="resize_small_center")
    # Both parts: a folder without train/ keeps a fifth for testing.
    run = {"training": training, "threads": threads, "workers": workers}
    pipeline = data.pipeline(folder, recipe, "train+test", **run)
    if training:
        yield from pipeline.from_step(0, 10**6)
    while True:
        yield from (batch for batch in pipeline if len(batch[0]) == batch_size)


def plain_tf_data(folder):
    """What one writes by hand: decode, crop at random, resize, flip."""
    import tensorflow as tf

    files = sorted(str(path) for path in pathlib.Path(folder).glob("*/*.jpg"))

    crop = {"area_range": (0.05, 1), "min_object_covered": 0}
    crop |= {"use_image_if_no_bounding_boxes": True}

    def load(path):
        image = tf.io.decode_jpeg(tf.io.read_file(path), 3)
        shape, boxes = tf.shape(image), tf.zeros((1, 0, 4))
        begin, size, _ = tf.image.sample_distorted_bounding_box(shape, boxes, **crop)
        image = tf.image.resize(tf.slice(image, begin, size), (SIZE, SIZE))
        return tf.image.random_flip_left_right(image) / 127.5 - 1, 0

    options = tf.data.Options()
    options.threading.private_threadpool_size = WORKERS
    dataset = tf.data.Dataset.from_tensor_slices(files).shuffle(len(files)).repeat()
    dataset = dataset.map(load, num_parallel_calls=WORKERS).batch(BATCH).prefetch(2)
    return ((images.numpy(), labels) for images, labels in dataset.with_options(options))


def torch_loader(folder):
    """PyTorch's loader with Pillow and a crop like torchvision's RandomResizedCrop."""
    import numpy as np
    import torch
    from PIL import Image

    from keras_vit.data.crops import random_resized_box  # as torchvision draws it

    area, ratio, rng = (0.05, 1), (3 / 4, 4 / 3), np.random.default_rng(0)

    class Files(torch.utils.data.Dataset):
        files = sorted(pathlib.Path(folder).glob("*/*.jpg"))

        def __len__(self):
            return len(self.files)

        def __getitem__(self, index):
            image = Image.open(self.files[index]).convert("RGB")
            width, height = image.size
            top, left, tall, wide = random_resized_box(height, width, area, ratio, rng)
            box = left, top, left + wide, top + tall
            image = image.resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=box)
            pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
            pixels = pixels.flip(-1) if torch.rand(()) < 0.5 else pixels
            return pixels.float().div_(127.5).sub_(1), 0

    workers = {"num_workers": WORKERS, "persistent_workers": True}
    loader = torch.utils.data.DataLoader(Files(), BATCH, shuffle=True, drop_last=True, **workers)
    while True:
        yield from loader


CONTENDERS = {
    "keras_vit, 1 thread": functools.partial(endless_batches, threads=1),
    "keras_vit, 2 threads": functools.partial(endless_batches, threads=2),
    "keras_vit, 1 process of 1 thread": functools.partial(endless_batches, threads=1, workers=1),
    "keras_vit, 2 processes of 1 thread": functools.partial(endless_batches, threads=1, workers=2),
    "plain tf.data": plain_tf_data,
    "PyTorch DataLoader, Pillow": torch_loader,
}


def measure(name, folder, seconds):
    """Images per second once the loader runs."""
    batches = iter(CONTENDERS[name](folder))
    for _ in range(4):
        next(batches)
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        count += len(next(batches)[0])
    return count / (time.perf_counter() - start)


def run(name, folder, seconds):
    """The rate of a contender in a process of its own, or None where it is not installed."""
    arguments = ("--only", name, folder, "--seconds", str(seconds))
    try:
        return float(tables.run(__file__, *arguments, backend="torch").splitlines()[-1])
    except subprocess.CalledProcessError:
        print(f"{name} is left out, as its error above says.", file=sys.stderr)
        return None


def main():
    parser = tables.parser(__doc__)
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(measure(*options.only, options.seconds))
        return
    rates = {name: [] for name in CONTENDERS}
    with tempfile.TemporaryDirectory() as folder:
        make_images(folder, options.images)
        for _ in range(options.repeats):
            for name, measured in rates.items():
                measured.append(run(name, folder, options.seconds))
    rows = [
        (name, f"{statistics.median(measured):.0f}", ", ".join(f"{rate:.0f}" for rate in measured))
        for name, measured in rates.items()
        if None not in measured
    ]
    print(tables.table(("loader", "images/s, median", "all"), rows))
    print("\n" + tables.machine_line())


if __name__ == "__main__":
    main()
