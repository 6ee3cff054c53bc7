"""Images as the weights of a model want them: in training, tests and predictions alike."""

import dataclasses
import json
import shutil
import warnings

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit import VisionTransformer, evaluation, preprocessing, recipes, training
from keras_vit.data import Transform, load, pipeline, preprocess
from keras_vit.data.transform import apply
from tests.data.pipeline_cases import tagged
from tests.data.test_transforms import photographs, rng
from tests.support import refuses

pytestmark = pytest.mark.any_backend


WANTED = [
    preprocessing.CLIP,
    preprocessing.TIMM,
    preprocessing.BIG_VISION,
    preprocessing.SIGLIP,
    preprocessing.HUGGING_FACE,
    dataclasses.replace(preprocessing.CLIP, resize="center_square", library="pillow"),
    dataclasses.replace(preprocessing.TIMM, resize="squash", crop_fraction=0.875),
    preprocessing.Preprocessing((0.1,), (0.3,), crop_fraction=0.9, interpolation="bicubic"),
]


@pytest.mark.parametrize("wanted", WANTED, ids=str)
def test_a_transform_can_say_all_that_weights_want(wanted):
    for size in (32, 224, 255, (24, 48)):
        transform = Transform(size, "inception", flip=True).with_preprocessing(wanted)
        assert transform.preprocessing == wanted
        assert transform.flip and transform.image_size == Transform(size).image_size
    trained = Transform(24, "inception", library="tensorflow_uint8").with_preprocessing(
        wanted, crop=False
    )
    assert (trained.crop, trained.is_random) == ("inception", True)
    assert not trained.preprocessing.differs(wanted)
    assert trained.preprocessing.library == wanted.library
    for image in photographs()[:2]:
        assert apply(trained, image, rng(0)).dtype == np.uint8


def test_the_middle_of_training_is_that_of_prediction():
    """The float in between must not round a resize to a pixel less."""
    for side, small in [(9, 14), (14, 25), (224, 248), (384, 448), (20, 29), (255, 290)]:
        transform = Transform(side, "squash_center", resize_small=small)
        assert int(side / transform.preprocessing.crop_fraction) == small


def test_training_resizes_with_the_library_of_the_weights():
    """A random box that is the whole image, as Pillow makes it."""
    image = photographs()[0]
    transform = Transform(40, "inception", area=(1, 1), ratio=(4 / 3, 4 / 3))
    transform = transform.with_preprocessing(preprocessing.TIMM, crop=False)
    picture = Image.fromarray(image).resize((40, 40), Image.Resampling.BICUBIC)
    np.testing.assert_array_equal(apply(transform, image, rng(0)), np.asarray(picture))


DINO = WANTED[5]


@pytest.fixture
def folder(tmp_path):
    """Two classes of photographs in files of many kinds."""
    for index, image in enumerate(photographs()):
        place = tmp_path / "photos/train" / f"class_{index % 2}"
        place.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(image)
        picture.save(place / f"{index}.jpg", quality=80)
        picture.resize((1400, 1100)).save(place / f"{index}_large.jpg", exif=tagged(6))
        picture.convert("CMYK").save(place / f"{index}_inks.jpg")
        picture.save(place / f"{index}.png")
        deep = np.asarray(picture.convert("L")).astype("uint16") * 257
        Image.fromarray(deep).save(place / f"{index}_deep.png")
    shutil.copytree(tmp_path / "photos/train", tmp_path / "photos/test")
    return tmp_path / "photos"


def model_of(wanted, **options):
    options = {"patch_size": 8, "num_classes": 2, "width": 8, "depth": 1, "num_heads": 2, **options}
    model = VisionTransformer(image_size=24, mlp_dim=8, **options)
    model.preprocessing, model.weights_from = wanted, "somewhere"
    model.class_names = ("class_0", "class_1")
    return model


def recipe_for(count=15):
    recipe = recipes.get("digits").replace(examples=count, num_classes=2)
    recipe = recipe.scale(batch_size=4).scale(steps=3).replace(warmup_steps=0)
    crop = Transform(24, "inception", flip=True)
    return recipe.replace(train=crop, eval=Transform(24))


@pytest.mark.parametrize("wanted", [DINO, preprocessing.TIMM, preprocessing.HUGGING_FACE], ids=str)
def test_a_folder_is_tested_and_predicted_with_equal_pixels(folder, wanted):
    model = model_of(wanted)
    paths = sorted(folder.glob("test/*/*"))
    expected = preprocess(paths, model)
    test = pipeline(folder, recipe_for(), "test", model=model)
    images = np.concatenate([images for images, _ in test])
    np.testing.assert_array_equal(images, expected)
    assert test.preprocessing == wanted
    report = evaluation.evaluate(model, test)
    scores = keras_vit.predict(model, paths)
    right = [scores[i][0].label == path.parent.name for i, path in enumerate(paths)]
    assert report.figures["accuracy"] == np.mean(right)


def test_training_sees_the_mean_and_deviation_of_the_weights(folder):
    """Two pipelines with the same draws: what one makes of bytes, the other scales otherwise."""
    recipe, model = recipe_for(), model_of(DINO)
    recipe = recipe.for_weights(dataclasses.replace(DINO, mean=(0.5,) * 3, std=(0.5,) * 3))
    plain = next(iter(pipeline(folder, recipe)))[0]
    scaled = next(iter(pipeline(folder, recipe.for_weights(model))))[0]
    expected = ((plain + 1) / 2 - np.array(DINO.mean)) / np.array(DINO.std)
    np.testing.assert_allclose(scaled, expected, atol=1e-5)


@pytest.mark.parametrize("how", ["fit", "training.fit"])
def test_a_trained_model_wants_the_images_of_its_training(folder, tmp_path, how):
    model = keras_vit.VisionTransformer(
        image_size=24, patch_size=8, num_classes=2, width=8, depth=1, num_heads=2, mlp_dim=8
    )
    recipe = recipe_for().for_weights(DINO)
    train = pipeline(folder, recipe)
    recipe.compile(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # a new model has no wish of its own
        if how == "fit":
            model.fit(train, verbose=0)
        else:
            training.fit(model, train, tmp_path / "run", steps=2, curves=False)
    assert model.preprocessing == DINO == train.preprocessing
    model.save(tmp_path / "model.keras")
    assert keras.saving.load_model(tmp_path / "model.keras").preprocessing == DINO


def test_a_model_knows_how_load_has_resized_its_images(folder):
    """Its files are prepared alike, and a warning tells where no preprocessing does so."""
    photos, model = load(folder, image_size=24), model_of(preprocessing.GOOGLE)
    assert photos.resized and not load("digits", image_size=24).resized
    train, files = pipeline(photos, recipe_for()), sorted(map(str, folder.glob("train/*/*")))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        recipe_for().compile(model).fit(train, verbose=0)
        expected = preprocess(photos.train_images)
        np.testing.assert_allclose(preprocess(files, model), expected, atol=1e-6)
        evaluation.evaluate(model, photos)
    for wanted in (preprocessing.TIMM, preprocessing.GOOGLE):
        with pytest.warns(UserWarning, match="has resized are others than the model gets"):
            evaluation.evaluate(model_of(wanted), photos)
    with pytest.warns(UserWarning, match="has resized are others than the model gets"):
        cropped = pipeline(photos, recipe_for(), model=model_of(preprocessing.TIMM))
    assert cropped.preprocessing == preprocessing.TIMM


def test_data_and_weights_that_contradict_each_other(folder, tmp_path):
    model = recipe_for().compile(model_of(DINO))
    data = pipeline(folder, recipe_for())
    with pytest.warns(UserWarning, match=r"(?s)not normalised as .*0\.4815.*for_weights") as caught:
        training.fit(model, data, tmp_path / "run", steps=3, validation=data, curves=False)
    assert len([each for each in caught if "normalised" in str(each.message)]) == 1
    assert model.preprocessing == data.preprocessing
    model.preprocessing = DINO
    test = pipeline(folder, recipe_for(), "test")
    for test_it in (model.evaluate, lambda data: evaluation.evaluate(model, data)):
        with pytest.warns(UserWarning, match="not normalised as"):
            test_it(test)
    assert model.preprocessing == DINO
    distiller = training.Distiller(model_of(DINO), model_of(DINO))
    distiller.compile("sgd", loss=training.SoftmaxLoss())
    refuses(r"preprocessing=data\.preprocessing", distiller.fit, data, verbose=0)


@pytest.mark.parametrize("name", ["a call", "scaled within", "of two that differ"])
def test_a_model_around_a_network_wants_the_images_of_the_network(folder, tmp_path, name):
    """What is scaled on the way, and what networks disagree about, nothing is said of."""
    network, other = model_of(DINO), model_of(preprocessing.SIGLIP)
    x = keras.Input(network.input_shape[1:])
    outputs = {
        "a call": lambda: network(x),
        "scaled within": lambda: network(keras.layers.Rescaling(3.0)(x)),
        "of two that differ": lambda: keras.layers.Average()([network(x), other(x)]),
    }
    model = keras.Model(x, outputs[name]())
    test, floats = pipeline(folder, recipe_for(), "test"), np.full((2, *x.shape[1:]), 255.0)
    train, told = pipeline(folder, recipe_for()), []
    recipe_for().compile(model)
    for run in (
        lambda: evaluation.evaluate(model, test),
        lambda: evaluation.evaluate(model, (floats, [0, 1])),
        lambda: evaluation.embed(model, floats.astype("float32")),
        lambda: training.fit(model, train, tmp_path / "run", steps=1, curves=False),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run()
        texts = (str(each.message) for each in caught)
        told.append(sum("normalised as" in text or "wants values" in text for text in texts))
    assert told == [name == "a call"] * 4
    assert model.preprocessing == train.preprocessing
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    if name == "a call":
        assert keras_vit.backbone(again).preprocessing == train.preprocessing
        distiller = training.Distiller(again, keras.Model(x, model_of(DINO)(x)))
        assert distiller.preprocessing == train.preprocessing
        assert distiller.teacher_preprocessing == DINO
    elif name == "scaled within":
        assert keras_vit.backbone(again).preprocessing == DINO


def test_a_recipe_takes_the_size_of_the_model_and_keeps_its_file():
    recipe = recipes.own_images(131, 3)
    made = recipe.for_weights(model_of(DINO))
    assert made.image_size == (24, 24)
    assert made.train.crop == recipe.train.crop
    assert made.for_weights(model_of(DINO)) == made
    again = recipes.Recipe.from_dict(json.loads(json.dumps(made.to_dict())))
    assert again == made
    usual = recipe_for()
    assert usual.for_weights(preprocessing.GOOGLE) == usual
    assert not {"mean", "library", "crop_fraction"} & usual.to_dict()["train"].keys()
    vit = model_of(DINO)
    around = keras.Model(vit.input, keras.layers.Dense(1)(vit.output))
    assert recipe.for_weights(around) == made
    any_size = model_of(DINO, variable_size=True)
    assert recipe.for_weights(any_size).image_size == recipe.image_size
    refuses("preprocessing", recipe.for_weights, "vit", error=TypeError)
    with pytest.raises(ValueError, match="normalise alike"):
        made.replace(eval=recipe.eval.with_preprocessing(preprocessing.GOOGLE).__class__(24))


def test_images_that_nothing_tells_of_are_asked_for(tmp_path, folder):
    """A bare file of a library whose models differ; with its config beside it, all is known."""
    path = tmp_path / "bare" / "model.safetensors"
    path.parent.mkdir()
    keras_vit.save_weights(model_of(DINO), path, format="timm")
    known = keras_vit.from_checkpoint(path.parent)
    assert "preprocessing" not in str(known.load_report)
    (path.parent / "config.json").unlink()
    model = keras_vit.from_checkpoint(path, num_heads=2)
    assert "preprocessing=" in str(model.load_report)
    photo = next(folder.glob("test/*/*"))
    for use in (lambda: preprocess(photo, model), lambda: recipe_for().for_weights(model)):
        with pytest.warns(UserWarning, match="Nothing beside the checkpoint"):
            use()
    model.preprocessing = known.preprocessing
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        np.testing.assert_array_equal(preprocess(photo, model), preprocess(photo, known))


def test_gray_images_have_one_mean(folder):
    assert not DINO.differs(DINO.for_channels(1)) and not DINO.for_channels(1).differs(DINO)
    assert DINO.differs(preprocessing.GOOGLE.for_channels(1))
    recipe = recipe_for().for_weights(DINO)
    assert pipeline(folder, recipe, channels=1).preprocessing == DINO.for_channels(1)
    gray = model_of(DINO.for_channels(1), channels=1)
    test = pipeline(folder, recipe_for(), "test", model=gray, channels=1)
    expected = preprocess(sorted(folder.glob("test/*/*")), gray)
    np.testing.assert_array_equal(np.concatenate([images for images, _ in test]), expected)
    x = keras.Input((24, 24, 1))
    for model in (gray, keras.Model(x, gray(x))):
        assert pipeline(folder, recipe_for(), model=model).image_shape[-1] == 1


def test_means_of_other_channels_are_refused(folder):
    """Two or five means say nothing about the three channels of a photograph."""
    two = recipe_for().eval.with_preprocessing(
        preprocessing.Preprocessing(mean=(0.4, 0.5), std=(0.2, 0.3))
    )
    with pytest.raises(ValueError, match="one number for each of the 3 channels"):
        pipeline(folder, recipe_for().replace(train=two, eval=two), "test")
