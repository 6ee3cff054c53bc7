"""BiT through the same calls as the Vision Transformer: load, save, new head, fold, resize."""

import keras
import numpy as np
import pytest

import keras_vit
from tests.support import (
    ORACLES,
    assert_close,
    forward,
    images,
    largest,
    randomize,
    read_arrays,
    tiny_vit,
    values,
)

OFFICIAL = ORACLES / "bit_official" / "r1111_w05" / "checkpoint.npz"
SMALL = {"blocks": (1, 1), "width": 0.5, "image_size": 48, "num_classes": 3}


def checkpoints():
    for folder in ("bit_official", "bit_timm", "bit_hf"):  # all of them are in test_bit.py
        for case in sorted(path.parent for path in (ORACLES / folder).glob("*/io.npz")):
            file = {"bit_timm": "model.safetensors", "bit_hf": ""}.get(folder, "checkpoint.npz")
            yield pytest.param(case, case / file, id=f"{folder}-{case.name}")


@pytest.mark.parametrize("case, checkpoint", checkpoints())
def test_from_checkpoint(case, checkpoint):
    io = read_arrays(case / "io.npz")
    output = "output" if "output_f64" in io else "logits"
    model = keras_vit.from_checkpoint(checkpoint)
    assert isinstance(model, keras_vit.BiT)
    noise = largest(io[f"{output}_f32"] - io[f"{output}_f64"])
    assert_close(forward(model, io["input"]), io[f"{output}_f64"], 8 * noise)
    assert len(model.load_report.loaded) == len(model.weights)


def test_another_number_of_classes():
    model = keras_vit.from_checkpoint(OFFICIAL, num_classes=3, image_size=128)
    assert not values(model)["head/kernel"].any()
    assert "10 classes in the file, 3 classes in the model" in str(model.load_report)
    features = keras_vit.from_checkpoint(OFFICIAL, include_top=False)
    assert features.output_shape == (None, 1024)


def test_loading_into_a_model():
    target = keras_vit.BiT(blocks=(1, 1, 1, 1), width=0.5, num_classes=10)
    keras_vit.load_weights(target, OFFICIAL)
    source = keras_vit.from_checkpoint(OFFICIAL)
    for a, b in zip(target.weights, source.weights, strict=True):
        assert_close(a, b, 0)
    with pytest.warns(UserWarning, match=r"numerics: 'bit' in the checkpoint, 'timm'"):
        other = keras_vit.BiT(blocks=(1, 1, 1, 1), width=0.5, num_classes=10, numerics="timm")
        keras_vit.load_weights(other, OFFICIAL)


def test_what_does_not_fit():
    with pytest.raises(ValueError, match=r"holds a BiT; the model .* is a VisionTransformer"):
        keras_vit.load_weights(tiny_vit(), OFFICIAL)
    with pytest.raises(ValueError, match=r"holds a BiT; this builder makes a VisionTransformer"):
        keras_vit.ViT_Ti16(weights=OFFICIAL, depth=1)
    with pytest.raises(ValueError, match=r"blocks=\(1, 1, 1, 1\) in the file, \(1, 1\) in"):
        keras_vit.load_weights(keras_vit.BiT(blocks=(1, 1), width=0.5), OFFICIAL)


def test_a_builder_takes_the_family_s_constants(tmp_path):
    options = {"blocks": (1, 1), "width": 0.5, "num_classes": 3}
    source = randomize(keras_vit.BiT(numerics="bit_paper", **options))
    path = keras_vit.save_weights(source, tmp_path / "model.npz", force=True)
    built = keras_vit.BiT_R50x1(weights=path, **options)
    assert built.variant.numerics == "bit"
    chosen = keras_vit.BiT_R50x1(weights=path, numerics="bit_paper", **options)
    x = images((2, 48, 48, 3))
    assert_close(forward(chosen, x), forward(source, x), 1e-6)


def test_published_names_come_back_to_the_byte(tmp_path):
    keras_vit.save_weights(keras_vit.from_checkpoint(OFFICIAL), tmp_path / "again.npz")
    again, file = read_arrays(tmp_path / "again.npz"), read_arrays(OFFICIAL)
    assert set(again) == set(file)
    for name, array in file.items():
        np.testing.assert_array_equal(again[name], array, err_msg=name)


def test_what_is_not_written(tmp_path):
    model = keras_vit.BiT(**SMALL)
    for path in (tmp_path / "folder", tmp_path / "model.npz"):
        with pytest.raises(ValueError, match=r"numerics='bit_paper'\. Choose another of the ways"):
            keras_vit.save_weights(keras_vit.BiT(**SMALL, numerics="bit_paper"), path)
    with pytest.raises(ValueError, match=r"blocks=\(1, 1\).*formats, 'google' or 'huggingface',"):
        keras_vit.save_weights(model, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"Choose another of"):
        keras_vit.save_weights(keras_vit.BiT(**SMALL, version="v1"), tmp_path / "model.npz")
    with pytest.raises(ValueError, match="standardised twice"):
        keras_vit.save_weights(keras_vit.fold(model), tmp_path / "model.npz")


def test_timm_opens_what_was_written(tmp_path):
    timm, torch = pytest.importorskip("timm"), pytest.importorskip("torch")
    model = randomize(keras_vit.BiT("R50x1", num_classes=3, numerics="timm"))
    keras_vit.save_weights(model, tmp_path / "model.safetensors")
    theirs = timm.create_model("resnetv2_50x1_bit", num_classes=3)
    timm.models.load_checkpoint(theirs, str(tmp_path / "model.safetensors"), strict=True)
    x = images((2, 64, 64, 3))
    with torch.no_grad():
        outputs = theirs.eval()(torch.tensor(x.transpose(0, 3, 1, 2)))
    expected = forward(model, x)
    assert_close(outputs.numpy(), expected, 3e-5 * max(largest(expected), 1))


def test_folded_kernels_compute_the_same(tmp_path):
    model, x = randomize(keras_vit.BiT(**SMALL)), images((2, 48, 48, 3))
    folded = keras_vit.fold(model)
    assert_close(forward(folded, x), forward(model, x), 1e-5 * max(largest(forward(model, x)), 1))
    folded.save(tmp_path / "folded.keras")
    loaded = keras.saving.load_model(tmp_path / "folded.keras")
    assert loaded.variant.folded
    assert_close(forward(loaded, x), forward(folded, x), 1e-6)


def test_another_resolution_changes_no_weight():
    model = randomize(keras_vit.BiT(**SMALL))
    resized = keras_vit.resize(model, image_size=64)
    assert resized.image_size == (64, 64)
    for a, b in zip(resized.weights, model.weights, strict=True):
        assert_close(a, b, 0)
    with pytest.raises(ValueError, match="neither patches nor position embeddings"):
        keras_vit.resize(model, patch_size=8)


def test_predictions_and_preprocessing_are_for_bit_too():
    model = randomize(keras_vit.BiT(**SMALL))
    photograph = np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype="uint8")
    assert keras_vit.preprocess(photograph, model).shape == (1, 48, 48, 3)
    (best,) = keras_vit.predict(model, photograph, top=2, class_names=("a", "b", "c"))
    assert len(best) == 2 and best[0].probability >= best[1].probability
