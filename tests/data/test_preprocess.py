"""What `preprocess` takes: files of every kind, arrays and models; and what it refuses."""

import struct
import subprocess
import sys
import zlib

import keras
import numpy as np
import pytest
from PIL import Image

from keras_vit import VisionTransformer
from keras_vit.data import Transform, preprocess
from keras_vit.data.pixels import normalized, per_channel, pixels_of
from keras_vit.data.transform import apply
from keras_vit.preprocessing import GOOGLE, HUGGING_FACE, TIMM, Preprocessing
from tests.data.pipeline_cases import tagged
from tests.data.test_resize import IMAGENET, model_of, photographs
from tests.support import refuses

pytestmark = pytest.mark.any_backend


def save(image, path, **options):
    image.save(path, **options)
    return path


def test_files_of_every_kind(tmp_path):
    """Each file shows the same left half red, right half blue, in its own way."""
    pixels = np.zeros((20, 40, 3), "uint8")
    pixels[:, :20, 0] = pixels[:, 20:, 2] = 255
    image = Image.fromarray(pixels)
    clear = image.convert("RGBA")
    clear.putalpha(7)
    exif = tagged(8)  # display after a quarter turn against the clock
    turned = image.transpose(Image.Transpose.ROTATE_270)
    items = [
        save(image, tmp_path / "rgb.png"),
        str(save(image.convert("P", palette=Image.Palette.ADAPTIVE), tmp_path / "palette.png")),
        save(clear, tmp_path / "alpha.png"),
        save(image.convert("CMYK"), tmp_path / "cmyk.tif"),
        save(turned, tmp_path / "exif.jpg", exif=exif, quality=100, subsampling=0),
        image,
        Image.open(tmp_path / "exif.jpg"),
        clear,
        pixels,
        pixels / 255,
    ]
    expected = preprocess(pixels, model_of(image_size=(10, 10)))
    actual = preprocess(items, model_of(image_size=(10, 10)))
    np.testing.assert_allclose(actual, np.repeat(expected, len(items), 0), atol=4 / 127.5)
    for item in items[:6]:
        np.testing.assert_array_equal(preprocess(item, model_of()), preprocess([item], model_of()))


def test_grayscale_files_and_sixteen_bits(tmp_path):
    gray = np.random.default_rng(0).integers(0, 256, (9, 7), "uint8")
    items = [
        save(Image.fromarray(gray), tmp_path / "8.png"),
        save(Image.fromarray(gray.astype("uint16") * 257), tmp_path / "16.png"),
        Image.open(tmp_path / "16.png"),
        gray,
        np.repeat(gray[..., None], 3, -1),
    ]
    for channels in (1, 3):
        actual = preprocess(items, model_of(HUGGING_FACE, (9, 7), channels))
        expected = np.repeat(gray[..., None] / 127.5 - 1, channels, -1)
        np.testing.assert_allclose(actual, np.stack([expected] * 5), atol=1e-6)


def test_missing_and_corrupt_files_are_all_named(tmp_path):
    good = save(Image.new("RGB", (30, 30)), tmp_path / "good.png")
    broken, text = tmp_path / "broken.png", tmp_path / "text.jpg"
    broken.write_bytes(good.read_bytes()[:40])
    text.write_text("no image")
    absent = [tmp_path / "absent.png", str(tmp_path / "gone.jpg")]
    with pytest.raises(FileNotFoundError, match="2 of 4 images do not exist") as caught:
        preprocess([good, absent[0], broken, absent[1]], model_of())
    assert all(str(path) in str(caught.value) for path in absent)
    with pytest.raises(ValueError, match=r"2 of 4 images cannot be read\. Received") as caught:
        preprocess([good, broken, good, text], model_of())
    assert str(broken) in str(caught.value) and str(text) in str(caught.value)
    assert str(good) not in str(caught.value)
    with pytest.raises(ValueError, match=r"1 of 1 images.*\n.*images\[0\].*no fixed range"):
        preprocess(Image.new("F", (4, 4)), model_of())


def test_a_pattern_of_files(tmp_path):
    for index in range(3):
        Image.new("RGB", (5 + index, 4)).save(tmp_path / f"{index}.png")
    assert preprocess(tmp_path.glob("*.png"), model_of()).shape == (3, 224, 224, 3)
    files = np.array([f"{tmp_path}/0.png", f"{tmp_path}/1.png"])
    assert preprocess(files, model_of()).shape == (2, 224, 224, 3)
    refuses(r"No images\. Received: an empty list", preprocess, tmp_path.glob("*.jpeg"), model_of())


@pytest.mark.parametrize(
    "images, expected",
    [
        (np.full((4, 4, 3), 200.0), "from 200 to 200, .*divide by 255"),
        ([np.zeros((4, 4, 3)), np.full((4, 4, 3), -0.5)], r"images\[1\].*from -0.5 to -0.5"),
        (np.full((4, 4, 3), np.nan), "from nan to nan"),
        (np.zeros((4, 4, 3), "int64"), "Received: dtype int64"),
        (np.zeros((4, 28, 28), "uint8"), r"images\[..., None\]. Received: shape \(4, 28, 28\)"),
        ([np.zeros((1, 4, 4, 3), "uint8")], r"images\[0\] must have shape .*\(1, 4, 4, 3\)"),
        (np.zeros((0, 4, 3), "uint8"), r"Received: shape \(0, 4, 3\)"),
        ([np.zeros((4, 4, 3), "uint8"), 3], "item 1 of type int"),
        (None, "item 0 of type NoneType"),
    ],
)
def test_what_is_no_image(images, expected):
    refuses(expected, preprocess, images, model_of())


def test_other_numbers_of_channels():
    images = np.random.default_rng(0).integers(0, 256, (2, 20, 24, 4), "uint8")
    for how in (GOOGLE, HUGGING_FACE):
        actual = preprocess(images, model_of(how, (10, 12), channels=4))
        first = preprocess(images[..., :3], model_of(how, (10, 12)))
        np.testing.assert_array_equal(actual[..., :3], first)
    with pytest.raises(ValueError, match="mean must have one number for each of the 4 channels"):
        preprocess(images, model_of(Preprocessing(**IMAGENET), channels=4))
    with pytest.raises(ValueError, match="the model needs 4; pass arrays"):
        preprocess(Image.new("RGBA", (3, 3)), model_of(channels=4))


def test_models_and_arguments():
    image = photographs()[3]
    vit = VisionTransformer(
        image_size=(16, 32), patch_size=16, width=8, depth=1, num_heads=1, mlp_dim=8, num_classes=2
    )
    how = getattr(vit, "preprocessing", None) or GOOGLE
    expected = preprocess(image, model_of(how, (16, 32)))
    assert expected.shape == (1, 16, 32, 3)
    np.testing.assert_array_equal(preprocess(image, vit), expected)
    other = keras.Sequential([keras.Input((16, 32, 3)), keras.layers.Flatten()])
    np.testing.assert_array_equal(
        preprocess(image, other), preprocess(image, model_of(GOOGLE, (16, 32)))
    )
    timm = preprocess(image, model_of(TIMM, (20, 20)))
    np.testing.assert_array_equal(preprocess(image, vit, TIMM, 20), timm)
    np.testing.assert_array_equal(preprocess(image, preprocessing=TIMM, image_size=20), timm)
    fully = keras.Sequential([keras.Input((None, None, 1)), keras.layers.Conv2D(1, 1)])
    assert preprocess(image, fully, image_size=9).shape == (1, 9, 9, 1)


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ({"preprocessing": TIMM}, r"pass image_size.*Received: NoneType with input_shape None"),
        ({"model": "B/16"}, "Received: str with input_shape None"),
        ({"image_size": 0}, "image_size must be a positive integer"),
        ({"image_size": 8, "preprocessing": "timm"}, "Received: 'timm'"),
    ],
)
def test_what_is_not_told(arguments, expected):
    refuses(expected, preprocess, np.zeros((4, 4, 3), "uint8"), **arguments)


def test_files_need_a_model():
    for images in ("cat.jpg", ["cat.jpg", "dog.jpg"]):
        refuses(r"preprocess\(images, model\) for files. Received: no model", preprocess, images)


@pytest.mark.parametrize(
    "options",
    [
        {"image_size": 32, "value_range": (0, 1)},
        {"image_size": (24, 32), "crop": "squash"},
        {"image_size": 32, "crop": "squash_center", "resize_small": 40},
        *(
            {
                "image_size": size,
                "crop": "resize_small_center",
                "resize_small": resize_small,
                "interpolation": interpolation,
                "library": "tensorflow_uint8" if interpolation == "area" else "tensorflow",
            }
            for size, resize_small in ((224, 256), (240, 272), (384, 448))
            for interpolation in ("area", "bilinear")
        ),
    ],
    ids=str,
)
def test_images_after_training_are_those_of_the_recipe(options):
    """A run's model prepares images as its recipe has tested it; crops of all recipes."""
    image = np.asarray(photographs()[0])[:300, :451]
    transform = Transform(**options)
    low, high = transform.value_range
    expected = apply(transform, image).astype("float32") / 255 * (high - low) + low
    found = preprocess(
        image, preprocessing=transform.preprocessing, image_size=transform.image_size
    )
    np.testing.assert_allclose(found[0], expected, atol=1e-6)


SHOWN = {2: np.fliplr, 3: lambda x: x[::-1, ::-1], 4: np.flipud, 5: lambda x: x.swapaxes(0, 1)}
SHOWN |= {6: lambda x: np.rot90(x, -1), 7: lambda x: np.rot90(x, 2).swapaxes(0, 1), 8: np.rot90}
BROKEN = {
    "header": b"Exif\0\0\0\x08\0\x02\x01\x12\0\x03",
    "place": b"Exif\0\0II*\0\xff\xff\xff\x7f",
}
BROKEN["cut off"] = tagged(6).tobytes()[:-8]
DINO = Preprocessing(
    (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "center_square", 1.0, "bicubic", "pillow"
)
FILES = {
    "jpeg": ("RGB", "JPEG", {"quality": 95}),
    "large": ("RGB", "JPEG", {"progressive": True}),
    "inks": ("CMYK", "JPEG", {}),
    "png": ("RGB", "PNG", {}),
    "palette": ("P", "PNG", {"transparency": bytes(range(256))}),
    "alpha": ("RGBA", "PNG", {}),
    "deep": ("I;16", "PNG", {}),
    "tiff": ("CMYK", "TIFF", {}),
    "packed": ("L", "TIFF", {"compression": "tiff_lzw"}),
    "webp": ("RGBA", "WEBP", {"lossless": True, "method": 0}),
}


@pytest.mark.parametrize("bits, is_negative", [(12, False), (16, False), (16, True)])
def test_deep_tiffs_reach_from_black_to_white(tmp_path, bits, is_negative):
    """12 bits in bytes of their own, and images whose white is 0, as X-rays have them."""
    shades = np.linspace(0, 1, 8)[None].repeat(2, axis=0)
    levels = ((1 - shades if is_negative else shades) * (2**bits - 1)).round().astype("<u2")
    binary = np.unpackbits(levels.astype(">u2").view("u1").reshape(2, 8, 2), axis=-1)
    packed = np.packbits(binary[..., 16 - bits :].reshape(2, -1)) if bits == 12 else levels
    tags = {256: 8, 257: 2, 258: bits, 259: 1, 262: 1 - is_negative, 273: 122, 277: 1, 278: 2}
    tags[279] = packed.nbytes
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    path, header = tmp_path / "deep.tif", b"II*\0" + struct.pack("<IH", 8, len(tags))
    path.write_bytes(header + entries + bytes(4) + packed.tobytes())
    np.testing.assert_array_equal(pixels_of(path, 1)[:, :, 0], (shades * 255).round())


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.filterwarnings("ignore::UserWarning")  # of Pillow, about damaged EXIF data
def test_the_pixels_of_a_file_are_the_same_everywhere(tmp_path, kind):
    """Evaluation in training reads as `preprocess` does; upright, whatever a file says of it."""
    mode, form, options = FILES[kind]
    image = Image.fromarray(np.array(photographs()[0])[:220, :301])
    image = image.resize((802, 586)) if kind == "large" else image
    if mode == "I;16":
        image = Image.fromarray(np.array(image.convert("L")).astype("uint16") * 257)
    elif mode != "RGB":
        image = image.convert(mode)
    transforms = [Transform((30, 48)), Transform(32, "resize_small_center", resize_small=40)]
    transforms += map(Transform(32).with_preprocessing, (TIMM, DINO, HUGGING_FACE))
    path = tmp_path / f"image.{form.lower()}"
    exifs = {number: tagged(number) for number in range(1, 9)}
    if kind != "packed":  # libtiff writes no others
        exifs |= {number: tagged(number) for number in (0, 9, 255)}
    if form != "TIFF":
        exifs |= BROKEN
    upright = None
    for name, exif in exifs.items():
        image.save(path, form, exif=exif, **options)
        pixels = pixels_of(path, 3)
        upright = pixels if upright is None else upright
        np.testing.assert_array_equal(pixels, SHOWN.get(name, np.asarray)(upright))
        with Image.open(path) as opened:
            np.testing.assert_array_equal(pixels_of(opened, 3), pixels)
        for transform in transforms:
            expected = preprocess(
                path, preprocessing=transform.preprocessing, image_size=transform.image_size
            )
            found = apply(transform, path.read_bytes(), np.random.default_rng(0))
            np.testing.assert_array_equal(
                normalized(found, *per_channel(transform.preprocessing, 3)), expected[0]
            )


def test_the_tiles_of_a_file_count_as_its_pixels():
    """A TIFF of 100 x 100 pixels may lie in one tile of 16384 x 16384, which is decoded whole."""
    data = zlib.compress(bytes(128 * 128))

    def tiff(side):
        tags = {256: 100, 257: 100, 258: 8, 259: 8, 262: 1, 277: 1, 322: side, 323: side}
        tags |= {324: 8, 325: len(data)}
        rows = [struct.pack("<HHLL", tag, 4, 1, value) for tag, value in tags.items()]
        header = b"II*\0" + struct.pack("<L", 8 + len(data))
        return header + data + struct.pack("<H", len(rows)) + b"".join(rows) + bytes(4)

    assert pixels_of(tiff(128), 1).shape == (100, 100, 1)
    refuses("a tile of 16384 x 16384 pixels; raise", pixels_of, tiff(2**14), 1)


def test_damaged_tags_are_no_flood_of_warnings(tmp_path):
    """Of EXIF data the orientation alone is read."""
    rows = [struct.pack("<HHLL", 274, 3, 1, 6)]
    rows += [struct.pack("<HHLL", 300 + i, 4, 100, 10**8) for i in range(2000)]
    exif = b"II*\0" + struct.pack("<LH", 8, len(rows)) + b"".join(rows) + bytes(4)
    save(Image.new("RGB", (20, 10)), tmp_path / "a.png", exif=exif)
    code = "import sys; from keras_vit.data.pixels import pixels_of; "
    code += "print(pixels_of(sys.argv[1], 3).shape)"
    command = [sys.executable, "-c", code, str(tmp_path / "a.png")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "(20, 10, 3)\n" and "TiffImagePlugin" not in done.stderr
