"""One argument for all: a path, a folder, a URL, or a name of the catalogue."""

import pathlib
import re
import shutil

import pytest
from huggingface_hub import constants as hub_constants

import keras_vit
from keras_vit.weights import catalog
from keras_vit.weights.downloads import https_address, place_of
from tests.support import ORACLES, assert_same, refuses, values
from tests.weights.file_server import Answer
from tests.weights.stored import edit, refused

pytestmark = pytest.mark.any_backend

CHECKPOINT = ORACLES / "flax_vit" / "token_p8" / "checkpoint.npz"


@pytest.fixture
def offline(cache, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    return cache


def put(source):
    """The file where the download of a URL would leave it."""
    place = place_of(https_address(source))
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(CHECKPOINT, place)
    return place


def test_a_name_of_the_catalogue(offline):
    record = catalog.find("imagenet21k/ViT-B_16")
    place = put(record.url)
    model = keras_vit.from_checkpoint("imagenet21k/ViT-B_16")
    assert model.load_report.path == str(place)
    assert len(model.load_report.loaded) == len(model.weights)
    assert model.preprocessing == record.preprocessing
    assert model.label_set == record.label_set


def test_any_name_of_the_augreg_grammar(offline):
    """Fifty thousand files, of which the catalogue lists the recommended ones."""
    stem = "S_32-i1k-300ep-lr_0.001-aug_light0-wd_0.03-do_0.1-sd_0.1"
    place = put(f"gs://vit_models/augreg/{stem}.npz")
    for name in (stem, f"{stem}.npz", f"augreg/{stem}"):
        assert keras_vit.from_checkpoint(name).load_report.path == str(place)


@pytest.mark.parametrize(
    "build, weights, words",
    [
        (keras_vit.ViT_S16, "imagenet21k/ViT-B_16", r"are of B/16, for S/16\..*S_16"),
        (keras_vit.BiT_R50x1, "BiT-M-R101x1", r"of BiT-R101x1, for R50x1\..*BiT-S-R50x1"),
        (keras_vit.ViT_B16, "BiT-M-R50x1", r"of BiT-R50x1, for B/16"),
        (keras_vit.ViT_B16, "R50+ViT-B_16", r"R50\+ViT-B_16"),
        (keras_vit.ViT_B16, "imagenet", r"list_weights\(\) prints all\. Published for B/16: \['"),
        (keras_vit.BiT_R50x1, "imagenet", r"Published for R50x1: \[.*'BiT-S-R50x1'"),
        (keras_vit.ViT_B16, True, r"Received: True\. Published for B/16: "),
        (keras_vit.ViT_B16, "B16", r"list_weights\(variant='B/16'\)"),
        (keras_vit.ViT_B16, "vit_base_patch16_224", r"vit_base_patch16_224\.\w+"),
    ],
)
def test_weights_of_another_model_are_not_downloaded(offline, build, weights, words):
    refuses(words, build, weights=weights)


@pytest.mark.parametrize("arguments", [{"classes": 10}, {"num_labels": 10}, {"num_clases": 10}])
def test_arguments_are_checked_before_a_download(offline, arguments):
    with pytest.raises(ValueError, match=f"argument='{next(iter(arguments))}'.*num_classes"):
        keras_vit.ViT_B16(weights="imagenet21k/ViT-B_16", **arguments)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("no_such", "no folder"),
        ("no_such/model.npz", "no folder"),
        ("no_such/", ""),
        ("./no_such", ""),
        ("~/no_such_model", ""),
        ("model.pt", ""),
        ("missing.npz", ""),
        (pathlib.Path("nothing"), ""),
    ],
)
def test_a_place_where_nothing_is(tmp_path, monkeypatch, place, words):
    monkeypatch.chdir(tmp_path)
    if words:
        place = f"{tmp_path}/missing/{place}"
        words = re.escape(f"there is no folder '{tmp_path}/missing'")
    words = f"file or folder '{re.escape(str(place))}'.*{words}"
    refuses(words, keras_vit.from_checkpoint, place, error=FileNotFoundError)


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("vit_large_patch16_224", "L/16"),
        ("google/vit-base-patch16-224", "B/16"),
        ("facebook/dinov2-small", "DINOv2-S/14"),
        ("vit_b_16", "B/16"),
        ("ViT-L-14", None),
        ("BiT-M-R50x1", "R50x1"),
    ],
)
def test_names_of_other_libraries_lead_to_a_variant(name, variant):
    words = "the nearest are" if variant is None else f"which is '{variant}' (or .*)?here"
    refuses(words, keras_vit.build, name)


@pytest.mark.parametrize("name", ["create_model", "from_pretrained", "list_models", "vit_b16"])
def test_functions_of_other_libraries(name):
    advice = {"vit_b16": "", "list_models": r"; list_weights\(\)"}.get(name, "; from_checkpoint")
    refuses(f"'{name}'{advice}", getattr, keras_vit, name, error=AttributeError)


def test_a_published_model_without_a_table_of_positions(offline, tmp_path):
    """The catalogue knows that its positions are computed; nobody knows it of another file."""
    source = keras_vit.VisionTransformer(
        width=16, depth=1, num_heads=2, patch_size=8, image_size=16, pool="mean", position="none"
    )
    path = keras_vit.save_weights(source, tmp_path / "plain.npz")
    refused("position='sincos_2d'", path)
    shutil.copy(path, put(catalog.find("i1k-s16-90ep").url))
    assert keras_vit.from_checkpoint("i1k-s16-90ep").variant.position == "sincos_2d"
    assert keras_vit.from_checkpoint(path, position="none").variant.position == "none"
    keras_vit.load_weights(source, path)


def test_what_the_catalogue_says_and_the_file_cannot(offline):
    """timm computes the exact GELU with some of Google's own files."""
    record = next(r for r in catalog.checkpoints(family="timm") if r.url.endswith(".npz"))
    put(record.url)
    model = keras_vit.from_checkpoint(record.name)
    assert model.variant.gelu == dict(record.overrides)["gelu"] == "erf"
    assert ("gelu", "erf", "the catalogue") in model.load_report.assumed
    assert model.preprocessing == record.preprocessing


@pytest.fixture
def published(offline, monkeypatch, tmp_path):
    """A name of the catalogue, and the folder where its files are taken from."""
    name = "google/vit-base-patch16-224"
    monkeypatch.setattr(hub_constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    repository = tmp_path / "hub" / f"models--{name.replace('/', '--')}"
    source = ORACLES / "hf_transformers5" / "vit_cls_p8"
    folder = shutil.copytree(source, repository / "snapshots" / "1")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("1")
    (folder / "config.json").chmod(0o644)
    assert dict(catalog.find(name).overrides) == {"gelu": "erf", "epsilon": 1e-12}
    return name, folder


def test_a_config_beside_the_arrays_knows_better_than_the_catalogue(published):
    name, folder = published
    edit(folder / "config.json", hidden_act="gelu_new", layer_norm_eps=1e-5)
    model = keras_vit.from_checkpoint(name)
    assert (model.variant.gelu, model.variant.epsilon) == ("tanh", 1e-5)
    said = {("gelu", "tanh", "its config.json"), ("epsilon", 1e-5, "its config.json")}
    assert said <= set(model.load_report.assumed)


def test_the_catalogue_speaks_where_the_config_is_silent(published):
    name, folder = published
    edit(folder / "config.json", hidden_act=None, layer_norm_eps=1e-5)
    assumed = keras_vit.from_checkpoint(name).load_report.assumed
    assert ("gelu", "erf", "the catalogue") in assumed
    assert ("epsilon", 1e-5, "its config.json") in assumed


def test_the_caller_knows_best(published):
    name, folder = published
    edit(folder / "config.json", hidden_act="gelu_new")
    model = keras_vit.from_checkpoint(name, gelu="erf", epsilon=1e-3)
    assert (model.variant.gelu, model.variant.epsilon) == ("erf", 1e-3)
    assert ("gelu", "tanh", "erf") in model.load_report.differs


@pytest.mark.parametrize("weights", [None, "", 3, ["a"]], ids=str)
def test_what_is_no_name_at_all(weights):
    refuses(r"weights must be.*Received", keras_vit.from_checkpoint, weights)


def test_a_home_folder_is_found(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copy(CHECKPOINT, tmp_path / "mine.npz")
    assert keras_vit.from_checkpoint("~/mine.npz").load_report.path == str(tmp_path / "mine.npz")


def test_a_url(cache, server):
    url = server.add("/models/vit.npz", Answer(CHECKPOINT.read_bytes()))
    model = keras_vit.from_checkpoint(url)
    again = keras_vit.from_checkpoint(url)
    assert len(server.requests) == 1, "the second load takes the cached file"
    expected = values(keras_vit.from_checkpoint(CHECKPOINT))
    assert_same(values(again), expected)
    assert model.load_report.path.startswith(str(cache))


def test_a_damaged_download_is_named(cache, server):
    url = server.add("/vit.npz", Answer(CHECKPOINT.read_bytes()[:-500]))
    refused(r"vit\.npz.*download is complete", url)
