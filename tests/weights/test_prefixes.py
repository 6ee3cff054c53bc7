"""The model in a file: under the name of a wrapper, in dicts, beside a teacher or an optimizer."""

import re
import types
import warnings

import numpy as np
import pytest

import keras_vit
from keras_vit.weights import load
from keras_vit.weights.files import read_safetensors
from keras_vit.weights.save import write_safetensors
from tests.support import ORACLES, assert_close, assert_same, read_arrays, refuses, values
from tests.weights.stored import refused

pytestmark = pytest.mark.any_backend

TIMM = ORACLES / "timm" / "vit_token_p8" / "model.safetensors"
HUGGING_FACE = ORACLES / "hf_transformers5" / "vit_cls_p8" / "model.safetensors"
GOOGLE = ORACLES / "flax_vit" / "token_p8" / "checkpoint.npz"


def tensors_of(path=TIMM, factor=1.0, prefix=""):
    torch = pytest.importorskip("torch")
    arrays = read_safetensors(path).items()
    return {prefix + name: torch.tensor(array * factor) for name, array in arrays}


def saved(folder, content):
    torch = pytest.importorskip("torch")
    torch.save(content, folder / "checkpoint.pth")
    return folder / "checkpoint.pth"


def read(path, prefix=None):
    checkpoint = load.read(path, {"num_heads": 4}, prefix=prefix)
    parts = map(vars, (checkpoint.weights, checkpoint.metadata, checkpoint.source))
    return types.SimpleNamespace(**{name: x for part in parts for name, x in part.items()})


def assert_loads(path, told, factor=1.0, source=TIMM, prefix=None):
    """A file has the arrays of `source`, times a factor; gives what is known of it."""
    found, expected = read(path, prefix), read(source)
    assert found.arrays.keys() == expected.arrays.keys()
    for name, array in found.arrays.items():
        np.testing.assert_array_equal(array, expected.arrays[name] * np.float32(factor))
    assert found.prefix == told
    return found


# ---- one model


PREFIXES = "model. net. model.backbone. module. _orig_mod. encoder. backbone. a.b.c.".split()


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_prefix_is_left_out_in_every_format(tmp_path, prefix):
    for source in (TIMM, HUGGING_FACE):
        arrays = {prefix + name: a for name, a in read_safetensors(source).items()}
        write_safetensors(tmp_path / "model.safetensors", arrays)
        assert_loads(tmp_path / "model.safetensors", prefix, source=source)
    path = saved(tmp_path, {"state_dict": tensors_of(prefix=prefix), "epoch": 3})
    assert_loads(path, "state_dict." + prefix)
    for source in (GOOGLE, *(ORACLES / "big_vision_bit").glob("bit_*[12]1_w05/checkpoint.npz")):
        arrays = {f"{prefix}/{name}": array for name, array in read_arrays(source).items()}
        np.savez(tmp_path / "model.npz", **arrays)
        assert_loads(tmp_path / "model.npz", prefix + "/", source=source)


KEYS = [("module",), ("model_state",), ("a", "b", "c"), ("ema", "shadow"), (0, "x")]
KEYS += [("exp1",), ("numu",), ("my_opt",), ("grader",)]  # no states of an optimizer


@pytest.mark.parametrize("keys", KEYS)
def test_a_dict_of_any_name_and_depth_holds_the_tensors(tmp_path, keys):
    content = tensors_of()
    for key in reversed(keys):
        content = {key: content, "step": 7}
    assert_loads(saved(tmp_path, content), ".".join(map(str, keys)) + ".")


def test_what_lies_outside_is_reported(tmp_path):
    torch = pytest.importorskip("torch")
    content = tensors_of(prefix="model.") | {"loss.weight": torch.ones(3)}
    report = assert_loads(saved(tmp_path, {"state_dict": content}), "state_dict.model.")
    assert report.ignored == ("state_dict.loss.weight",)
    # Names in the report are those of the file.
    model = keras_vit.from_checkpoint(saved(tmp_path, content), num_heads=4, num_classes=3)
    report = model.load_report
    assert report.prefix == "model." and "prefix                 'model.', left out" in str(report)
    assert report.ignored == ("model.head.weight", "model.head.bias", "loss.weight")


@pytest.mark.parametrize("inner, outer", [("backbone.", ""), ("net.model.", "net."), ("a/b/", "")])
def test_a_head_beside_the_prefix_is_warned_of(tmp_path, inner, outer):
    arrays = read_safetensors(TIMM).items()
    file = {(outer if "head" in name else inner) + name: a for name, a in arrays}
    path = tmp_path / "model.safetensors"
    write_safetensors(path, file)
    with pytest.warns(UserWarning, match=rf"'{outer}head.weight'.*begin with '{inner}'") as caught:
        model = keras_vit.from_checkpoint(path, num_heads=4)
    assert caught[0].filename == __file__ and f"{outer}head.weight" in model.load_report.ignored
    others = {name.replace("head.", "other."): a for name, a in file.items()}
    for content, prefix in ((file, inner), (others, None)):
        write_safetensors(path, content)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "A head beside")
            keras_vit.from_checkpoint(path, num_heads=4, prefix=prefix)


def test_wrappers_within_a_model(tmp_path):
    """Of compiled blocks, of recomputation and of sharding."""
    for wrapper in ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"):
        arrays = {
            re.sub(r"^(blocks\.\d+\.(attn\.)?)", rf"\1{wrapper}.", name): array
            for name, array in read_safetensors(TIMM).items()
        }
        write_safetensors(tmp_path / "model.safetensors", arrays)
        assert_loads(tmp_path / "model.safetensors", "")


def test_the_state_of_an_optimizer_is_no_model(tmp_path):
    states = {"exp_avg": tensors_of(factor=2.0), "optimizer": {"buffer": tensors_of(factor=3.0)}}
    path = saved(tmp_path, {"net": tensors_of(), **states})
    assert_loads(path, "net.")
    refused(r"no family known.*exp_avg", saved(tmp_path, states))


def test_a_fault_in_a_model_is_not_taken_for_something_beside_it(tmp_path):
    """An unknown array among those of a model with a head: the encoder alone would be whole."""
    arrays = read_safetensors(HUGGING_FACE)
    assert all(name.startswith(("vit.", "classifier.")) for name in arrays)
    write_safetensors(tmp_path / "model.safetensors", arrays | {"clazzifier.bias": np.ones(10)})
    refused(r"no place in a model.*clazzifier\.bias", tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    "case, start", [("timm-hybrid_r111_w05", ""), ("hf_transformers4-vithybrid_r11", "vit.")]
)
def test_the_stem_of_a_hybrid_is_no_model(tmp_path, case, start):
    arrays = read_safetensors(ORACLES / "hybrids" / case / "model.safetensors")
    wrong = arrays | {f"{start}x.{i}": np.ones(1, "float32") for i in range(2 * len(arrays))}
    write_safetensors(tmp_path / "model.safetensors", wrong)
    refused(r"no place in a model of.*x\.0", tmp_path / "model.safetensors")


# ---- several models


AVERAGES = [("student", "teacher"), ("encoder", "target_encoder"), ("model", "model_ema")]
AVERAGES += [("state_dict", "state_dict_ema"), ("base", "momentum"), ("net", "swa")]
AVERAGES += [("online_network", "target_network"), ("model", "ema_model"), ("net", "polyak")]


@pytest.mark.parametrize("one, average", AVERAGES)
def test_an_average_over_training_is_preferred(tmp_path, one, average):
    both = {one: tensors_of(factor=2.0), average: tensors_of(), "optimizer": {"state": {}}}
    flat = {f"{key}.{name}": t for key in (one, average) for name, t in both[key].items()}
    for content in (both, flat):
        path = saved(tmp_path, content)
        report = assert_loads(path, f"{average}.")
        assert report.others == (f"{one}.",)
        assert f"{one}.pos_embed" in report.ignored
        for prefix in (one, f"{one}."):
            assert_loads(path, f"{one}.", 2.0, prefix=prefix)


def test_a_larger_teacher_is_no_average(tmp_path):
    larger = tensors_of(ORACLES / "timm" / "vit_gap_nocls_p16" / "model.safetensors")
    for start in ("student.", ""):
        path = saved(
            tmp_path, tensors_of(prefix=start) | {f"teacher.{n}": t for n, t in larger.items()}
        )
        refused(rf"several models.*'{start}'.*Say prefix=", path, num_heads=4)
        assert_loads(path, start, prefix=start)


def test_an_average_is_preferred_in_files_of_flax_and_optimizers_are_no_models(tmp_path):
    copies = {"ema_params/": 1.0, "params/": 2.0, "opt/0/mu/": 3.0, "opt/1/ema/": 4.0}
    stored = read_arrays(GOOGLE).items()
    for inside in ("", "img/"):
        file = {start + inside + n: a * f for start, f in copies.items() for n, a in stored}
        np.savez(tmp_path / "all.npz", **file)
        told = f"ema_params/{inside}"
        report = assert_loads(tmp_path / "all.npz", told, source=GOOGLE)
        assert report.others == (f"params/{inside}",)
    path = saved(tmp_path, {"model": tensors_of(), "opt": {"momentum": tensors_of(factor=2.0)}})
    assert_loads(path, "model.")


def test_a_model_that_exists_takes_the_part_that_is_named(tmp_path):
    path = saved(tmp_path, {"student": tensors_of(factor=2.0), "teacher": tensors_of()})
    model = keras_vit.from_checkpoint(path, num_heads=4)
    before = values(model)
    assert model.load_report.others == ("student.",)
    assert "other models           'student.'" in str(model.load_report)
    assert keras_vit.load_weights(model, path, prefix="student.").prefix == "student."
    for name, value in values(model).items():
        assert_close(value, 2 * before[name], 0)
    words = r"prefix='x'.*\['student\.', 'teacher\.'\]"
    refuses(words, keras_vit.load_weights, model, path, prefix="x", error=keras_vit.CheckpointError)
    for prefix in (3, b"student.", ("student.",)):
        refused("prefix must be a text.*Received", path, call=read, prefix=prefix)


def test_which_of_several_is_asked(tmp_path):
    path = saved(tmp_path, {"first": tensors_of(), "second": tensors_of(factor=2.0)})
    with pytest.raises(keras_vit.CheckpointError, match=r"'first\.'.*'second\.'.*Say prefix=") as e:
        keras_vit.from_checkpoint(path)
    assert path.name in str(e.value)
    assert_loads(path, "second.", 2.0, prefix="second")
    refuses("no family known", read, path, prefix="")


@pytest.mark.parametrize("source", [TIMM, HUGGING_FACE])
def test_a_model_without_a_prefix_beside_others(tmp_path, source):
    bare = tensors_of(source)
    for inner, told, factor in (("ema.", "ema.", 2.0), ("model.", None, None)):
        path = saved(tmp_path, bare | tensors_of(source, 2.0, inner))
        if told is None:
            refused(r"under ''.*'model\.'", path, call=read)
        else:
            assert assert_loads(path, told, factor, source).others == ("",)
        found = assert_loads(path, "", source=source, prefix="")
        assert found.others == (inner,) and len(found.ignored) >= len(bare)
        assert_loads(path, inner, 2.0, source, prefix=inner)
    moments = {i: {"exp_avg": t, "exp_avg_sq": t} for i, t in enumerate(bare.values())}
    for name in ("optimizer", "optimizer_state_dict"):
        path = saved(tmp_path, bare | {name: {"state": moments}, "epoch": 3})
        assert_loads(path, "", source=source)


# ---- training files of authors


def test_files_of_dino(tmp_path):
    """As DINO and DINOv2 store them: the teacher is not wrapped, and heads stand beside both."""
    torch = pytest.importorskip("torch")
    heads = {f"{h}.{n}": torch.ones(3) for h in ("dino_head", "ibot_head") for n in ("mlp.0.weight",
             "last_layer.weight_g")}  # fmt: skip
    v1 = {
        "student": tensors_of(factor=2.0, prefix="module.backbone.")
        | {"module.head.mlp.0.weight": torch.ones(3)},
        "teacher": tensors_of(prefix="backbone.") | {"head.last_layer.weight_v": torch.ones(3)},
        "optimizer": {"state": {0: {"exp_avg": torch.ones(3)}}, "param_groups": [{"lr": 0.1}]},
        "epoch": 100,
        "dino_loss": {"center": torch.zeros(1, 3)},
    }
    v2 = {
        f"{who}.{name}": tensor
        for who, factor in (("student", 2.0), ("teacher", 1.0))
        for name, tensor in {**tensors_of(factor=factor, prefix="backbone."), **heads}.items()
    }
    for content, start in ((v1, ""), (v2, ""), ({"model": v2}, "model.")):
        path = saved(tmp_path, content)
        report = assert_loads(path, f"{start}teacher.backbone.")
        assert "DINO" in report.family
        assert any("head" in name for name in report.ignored)
        assert len(report.others) == 1 and "student." in report.others[0]
        assert_loads(path, report.others[0], 2.0, prefix=f"{start}student")
        assert report.preprocessing.mean[0] == 0.485
    path = saved(tmp_path, {"teacher": tensors_of(prefix="backbone.") | heads})
    assert_loads(path, "teacher.backbone.")


@pytest.mark.parametrize("start", ["", "module."])
def test_files_of_moco(tmp_path, start):
    torch = pytest.importorskip("torch")
    projector = {f"head.{i}.weight": torch.ones(3) for i in (0, 1, 3)}
    headless = {n: t for n, t in tensors_of().items() if not n.startswith("head.")}
    content = {
        start + prefix + name: tensor * factor
        for prefix, factor in (("base_encoder.", 2.0), ("momentum_encoder.", 1.0))
        for name, tensor in {**headless, **projector}.items()
    } | {start + "predictor.0.weight": torch.ones(3)}
    path = saved(tmp_path, {"state_dict": content, "arch": "vit_small"})
    found, expected = read(path), read(TIMM)
    assert_same(found.arrays, {name: expected.arrays[name] for name in found.arrays})
    assert {name.split("/")[0] for name in expected.arrays.keys() - found.arrays.keys()} == {"head"}
    assert "MoCo" in found.family and found.preprocessing.interpolation == "bilinear"
    assert found.prefix == f"state_dict.{start}momentum_encoder."
    assert found.others == (f"state_dict.{start}base_encoder.",)
    for name in ("momentum_encoder.head.3.weight", "predictor.0.weight"):
        assert f"state_dict.{start}{name}" in found.ignored


def test_the_heads_of_moco_s_small_model(tmp_path):
    """Its authors give 12 heads to a width at which others have 6."""
    small = keras_vit.VisionTransformer("S/16", image_size=16, num_classes=0, gelu="erf")
    arrays = read_safetensors(keras_vit.save_weights(small, tmp_path / "model.safetensors"))
    (tmp_path / "config.json").unlink()
    for prefix, heads in (("momentum_encoder.", 12), ("model.", 6)):
        path = tmp_path / "model.safetensors"
        write_safetensors(path, {prefix + name: a for name, a in arrays.items()})
        assert load.read(path, {}).arguments["num_heads"] == heads
