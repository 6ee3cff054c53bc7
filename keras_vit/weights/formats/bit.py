"""BiT checkpoints: of big_transfer, of big_vision's two ResNets, of timm, and of Hugging Face.

In google-research/big_transfer, the published BiT-*.npz, a counter may follow `standardized_conv2d`
and `group_norm`, and the head is a 1 x 1 convolution. In google-research/big_vision `bit_paper.py`
is the published, pre-activation BiT, and `bit.py` a post-activation one, whose units are called as
in the stems of hybrids; they are read, not written. timm's are `resnetv2_*_bit`, those of Hugging
Face `BitForImageClassification`.
"""

import dataclasses
import re

from keras_vit.checks import pair
from keras_vit.layers.resnet import GROUPS
from keras_vit.models.bit import BIT_VARIANTS, BiTVariant
from keras_vit.preprocessing import BIG_VISION, BIT, Preprocessing
from keras_vit.weights import huggingface_images, tables
from keras_vit.weights.canonical import ROOT, resnet_of, units_of
from keras_vit.weights.formats import google, huggingface, timm_writing
from keras_vit.weights.model_arguments import CALLER, CONFIG, CUSTOM, UNREPORTED
from keras_vit.weights.safety import CheckpointError, of_other_model
from keras_vit.weights.tables import SAME, VECTOR, Layout, Table
from keras_vit.weights.writable import WritableFamily

UNIT_PATH = "stage_{s}_unit_{u}/"
CONV_1X1 = Layout(4, tables.matrix_of, lambda k: k[None, None])
# timm's 1e-8 in place of the authors' 1e-10 beside the variance of a kernel is no obstacle to it:
# timm reads the published files so.
AS_BIT = {"numerics": ("bit", "timm")}


@dataclasses.dataclass(frozen=True)
class BiTFamily(WritableFamily):
    """A format of BiT."""

    preprocessing: Preprocessing = BIT
    model = "BiT"

    def architecture(self, arrays):
        if ROOT not in arrays or not any(name.startswith("stage_") for name in arrays):
            raise CheckpointError(
                f"This is no whole BiT of {self.name}. Received: {len(arrays)} arrays; expected "
                f"{ROOT!r} and units as well (canonical names)."
            )
        blocks, width, channels = resnet_of(arrays, f"BiT of {self.name}")
        return {
            "blocks": blocks,
            "width": width,
            "version": "v1" if "root/norm/gamma" in arrays else "v2",
            "num_classes": units_of(arrays, "head"),
            "channels": channels,
        }

    def settle(self, arrays, arguments):
        arguments.add(CUSTOM, "the custom; a ResNet takes any size", image_size=224)
        if size := arguments.caller.get("image_size"):
            arguments.add(CALLER, UNREPORTED, image_size=size)
        arguments["image_size"] = pair(arguments["image_size"], "image_size")


_big_transfer_norm = tables.rows_of("/gamma /beta", "gamma beta", VECTOR)


def _big_transfer_unit(unit):
    """Rows of a unit of big_transfer, whose three parts are called a, b and c."""
    rows = [(unit + "a/proj/standardized_conv2d/kernel", UNIT_PATH + "conv_proj/kernel", SAME)]
    for n, part in enumerate("abc", start=1):
        rows += [(f"{unit}{part}/standardized_conv2d/kernel", f"{UNIT_PATH}conv{n}/kernel", SAME)]
        rows += _big_transfer_norm(f"{unit}{part}/group_norm", f"{UNIT_PATH}norm{n}")
    return rows


BIG_TRANSFER = BiTFamily(
    name="google-research/big_transfer",
    signature=r"resnet/(root_block|block\d+)/",
    stripped=r"(?<=standardized_conv2d)_\d+|(?<=group_norm)_\d+",
    table=Table(
        ("resnet/root_block/standardized_conv2d/kernel", ROOT, SAME),
        *_big_transfer_unit("resnet/block{s}/unit{u:02}/"),
        *_big_transfer_norm("resnet/group_norm", "norm"),
        ("resnet/head/conv2d/kernel", "head/kernel", CONV_1X1),
        ("resnet/head/conv2d/bias", "head/bias", SAME),
    ),
    defaults={"numerics": "bit"},
    can_store={"version": ("v2",)},
    can_compute={"numerics": ("bit",)},
)


class BigVision(BiTFamily):
    def recognises(self, arrays):
        """Whether these are the names of this family, rather than those of a hybrid."""
        is_hybrid = any(re.match(r"embedding/|Transformer/|cls$", name) for name in arrays)
        return super().recognises(arrays) and not is_hybrid

    def complete(self, weights, arguments, contents):
        if arguments["version"] == "v1":
            arguments["numerics"] = "google"

    def images(self, arguments, contents):
        return BIG_VISION if arguments["version"] == "v1" else self.preprocessing, (), True


BIG_VISION_BIT = BigVision(
    name="google-research/big_vision (BiT)",
    signature=r"(root_block/)?conv_root/|block\d+/unit\d+/",
    table=Table(
        ("[root_block/|]conv_root/kernel", ROOT, SAME),
        *google.RESNET_ROWS,
        *tables.flax_norm("norm-pre-head", "norm", VECTOR),
        *tables.flax_dense("head", "head"),
    ),
    defaults={"numerics": "bit_paper"},
)


TORCH_HEAD = Layout(  # from a 1 x 1 convolution, or a matrix in files that were made from such
    None,
    lambda k: k.T if k.ndim == 2 else tables.matrix_of(k.transpose(2, 3, 1, 0)),
    lambda k: k.T[:, :, None, None],
)


# (units of the stages, width) -> timm's name of a model of this size.
SIZES = ("50x1", "50x3", "101x1", "101x3", "152x2", "152x4")
PUBLISHED = {size: BIT_VARIANTS[f"R{size}"] for size in SIZES}
ARCHITECTURES = {(v.blocks, v.width): f"resnetv2_{size}_bit" for size, v in PUBLISHED.items()}


class Timm(BiTFamily):
    def complete(self, weights, arguments, contents):
        arguments.config = contents.config
        if size := contents.config.get("pretrained_cfg", {}).get("input_size", ())[1:]:
            arguments.add(CONFIG, image_size=tuple(size))

    def images(self, arguments, contents):
        stated = contents.config.get("pretrained_cfg", {})
        settings = {"crop_pct": 0.875, "interpolation": "bilinear", **stated}  # of resnetv2.py
        return *huggingface_images.preprocessing_of_timm(settings), stated

    def json_files(self, model):
        v, arguments = model.variant, {"in_chans": model.channels, "num_classes": model.num_classes}
        name = ARCHITECTURES.get((v.blocks, v.width), "resnetv2_50x1_bit")
        config = timm_writing.hub_config(model, name, v.features, arguments)
        config["pretrained_cfg"]["fixed_input_size"] = False
        return {"config.json": {**config, "global_pool": "avg"}}

    def obstacles(self, model):
        v = model.variant
        is_other = (v.blocks, v.width) not in ARCHITECTURES
        return super().obstacles(model) | {f"blocks={v.blocks} with width={v.width:g}": is_other}


TIMM = Timm(
    name="timm (BiT)",
    signature=r"stages\.\d+\.blocks\.\d+\.(conv[123]|downsample\.conv)\.weight$",
    unsupported={
        r"stem\.norm\..*|.*running_mean": "a norm of another ResNet than timm's resnetv2_*_bit"
    },
    table=Table(
        *tables.torch_resnet("stem.conv", "stem.norm", "stages.{s}.blocks.{u}"),
        *tables.torch_norm("norm", "norm"),
        ("head.fc.weight", "head/kernel", TORCH_HEAD),
        ("head.fc.bias", "head/bias", SAME),
    ),
    defaults={"numerics": "timm"},
    can_compute=AS_BIT,
    can_store={"version": ("v2",)},
)


class HuggingFace(BiTFamily):
    def complete(self, weights, arguments, contents):
        arguments.config = config = contents.config
        if size := contents.processor.get("crop_size", contents.processor.get("size")):
            arguments.add(CONFIG, image_size=huggingface_images.sides_of(size))
        v = BiTVariant(*(arguments[name] for name in ("blocks", "width", "version")))
        expected = self.config_of(v, arguments["channels"])
        wrong = {k: config[k] for k in expected if k in config and config[k] != expected[k]}
        if str(wrong.get("global_padding")).upper() == expected["global_padding"]:
            del wrong["global_padding"]
        if wrong.get("output_stride", 32) >= _stride(v):  # a smaller one would dilate instead
            wrong.pop("output_stride", None)
        if wrong:
            expected = {key: expected[key] for key in wrong}
            raise of_other_model(config, f"it says {wrong}, and the expected is {expected}")

    def images(self, arguments, contents):
        return *huggingface_images.preprocessing_of(contents.processor), contents.processor

    def config_of(self, v, channels):
        """Entries of `config.json` that make Hugging Face compute as a `BiT` does."""
        is_v1 = v.version == "v1"
        return {
            "layer_type": "bottleneck" if is_v1 else "preactivation",
            # What surrounds the convolutions and the max pooling: as in the hybrids, as in BiT.
            "global_padding": "SAME" if is_v1 else None,
            "embedding_dynamic_padding": is_v1,
            "depths": list(v.blocks),
            "hidden_sizes": v.channels,
            "embedding_size": v.channels[0] // 4,
            "num_groups": GROUPS,
            "width_factor": 1,
            "hidden_act": "relu",
            "num_channels": channels,
            "output_stride": max(_stride(v), 32),
        }

    def write(self, model, arrays):
        prefix = "bit." if model.num_classes else ""
        return huggingface.with_prefix(super().write(model, arrays), prefix)

    def json_files(self, model):
        stages = [f"stage{i}" for i in range(1, len(model.variant.blocks) + 1)]
        config = {
            "model_type": "bit",
            **self.config_of(model.variant, model.channels),
            "drop_path_rate": 0.0,
            "out_features": stages[-1:],
            "out_indices": [len(stages)],
            "stage_names": ["stem", *stages],
            **huggingface.labels(model),
        }
        files = huggingface.json_of(model, "Bit", config)
        processor = files["preprocessor_config.json"]
        processor.setdefault("do_center_crop", False)  # without it a `BitImageProcessor` crops
        processor["image_processor_type"] = "BitImageProcessor"
        return files


def _stride(v):
    """Pixels of the image for each of the last stage."""
    return 2 ** (len(v.blocks) + 1)


HUGGING_FACE = HuggingFace(
    name="Hugging Face transformers (BiT)",
    model_types=("bit",),
    signature=r"(bit\.)?(encoder\.stages\.\d+\.layers\.\d+\.conv[123]|embedder\.convolution)\.weight$",
    stripped=r"^bit\.",
    table=Table(
        *tables.torch_resnet(
            "embedder.convolution", "embedder.norm", "encoder.stages.{s}.layers.{u}"
        ),
        *tables.torch_norm("norm", "norm"),
        *tables.torch_linear("classifier.1", "head"),
    ),
    defaults={"numerics": "timm"},
    can_compute=AS_BIT,
)


FAMILIES = (HUGGING_FACE, TIMM, BIG_TRANSFER, BIG_VISION_BIT)  # no two recognise the same file
