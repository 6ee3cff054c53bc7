"""BiT checkpoints of timm, `resnetv2_*_bit`, and of Hugging Face, `BitForImageClassification`.

Kernels are (out, in, height, width) and numbers count from 0.
"""

import re

from keras_vit.layers.resnet import GROUPS
from keras_vit.models.bit import BIT_VARIANTS, BiTVariant
from keras_vit.weights import huggingface, huggingface_config, timm_config
from keras_vit.weights.bit import HEAD, BigTransfer, BigVision, BiTFormat, only
from keras_vit.weights.files import CheckpointError
from keras_vit.weights.tables import (
    SAME,
    TRANSPOSED,
    Layout,
    Table,
    shortened,
    torch_norm,
    torch_resnet,
)


class Timm(BiTFormat):
    """State dicts of timm."""

    FAMILY = "timm (BiT)"
    SIGN = r"stages\.\d+\.blocks\.\d+\.(conv[123]|downsample\.conv)\.weight$"
    TABLE = Table(
        *torch_resnet("stem.conv", "stem.norm", "stages.{s}.blocks.{u}"),
        *torch_norm("norm", "norm"),
        (
            "head.fc.weight",
            HEAD,
            Layout(  # a 1 x 1 convolution, and a matrix in files that were made from such
                None,
                lambda k: k.T if k.ndim == 2 else only(k.transpose(2, 3, 1, 0), k[:, :, 0, 0].T),
                lambda k, v: k.T[:, :, None, None],
            ),
        ),
        ("head.fc.bias", "head/bias", SAME),
    )
    PUBLISHED = ("R50x1", "R50x3", "R101x1", "R101x3", "R152x2", "R152x4")

    @classmethod
    def read(cls, contents, hints):
        sign = r"stem\.norm\..*|.*running_mean"
        other = sorted(name for name in contents.arrays if re.fullmatch(sign, name))
        if other:
            raise CheckpointError(
                f"The file is of another ResNet: it has {shortened(other)}. Of timm's, those "
                "with group norm before the convolutions are read, resnetv2_*_bit."
            )
        settings = {"crop_pct": 0.875, "interpolation": "bilinear"}  # defaults of resnetv2.py
        settings |= contents.config.get("pretrained_cfg", {})
        preprocessing, unsaid = timm_config.preprocessing_of(settings)
        size = tuple(settings.get("input_size", ())[1:]) or None
        facts = {"preprocessing": preprocessing, "ignored": unsaid}
        return cls.canonical(contents.arrays, lambda version: "timm", hints, size, **facts)

    @classmethod
    def config(cls, model):
        """`config.json` as timm's hub has it: the architecture and its arguments."""
        return {
            "architecture": cls.architecture(model.variant) or "resnetv2_50x1_bit",
            "num_classes": model.num_classes,
            "num_features": model.variant.features,
            "global_pool": "avg",
            "model_args": {"in_chans": model.channels, "num_classes": model.num_classes},
            "pretrained_cfg": {"fixed_input_size": False, **timm_config.pretrained_cfg(model)},
        }

    @classmethod
    def architecture(cls, v):
        """timm's name for a model of this size, if it has one."""
        rows = {name: BIT_VARIANTS[name] for name in cls.PUBLISHED}
        names = [n for n, row in rows.items() if (row.blocks, row.width) == (v.blocks, v.width)]
        return f"resnetv2_{names[0][1:]}_bit" if names else None

    @classmethod
    def impossible(cls, model):
        v = model.variant
        size = f"blocks={v.blocks} with width={v.width:g}"
        return ["version='v1'"] * (v.version != "v2") + [size] * (cls.architecture(v) is None)


class HuggingFace(BiTFormat):
    """Folders of Hugging Face transformers."""

    FAMILY = "Hugging Face transformers (BiT)"
    SIGN = r"(bit\.)?(encoder\.stages\.\d+\.layers\.\d+\.conv[123]|embedder\.convolution)\.weight$"
    STRIPPED = r"^bit\."
    TABLE = Table(
        *torch_resnet("embedder.convolution", "embedder.norm", "encoder.stages.{s}.layers.{u}"),
        *torch_norm("norm", "norm"),
        ("classifier.1.weight", HEAD, TRANSPOSED),
        ("classifier.1.bias", "head/bias", SAME),
    )

    @classmethod
    def read(cls, contents, hints):
        config = contents.config
        preprocessing, unsaid = huggingface_config.preprocessing_of(contents.processor)
        size = contents.processor.get("crop_size", contents.processor.get("size"))
        if isinstance(size, dict):
            edge = size.get("shortest_edge")
            size = (size.get("height", edge), size.get("width", edge))
        facts = {"preprocessing": preprocessing, "ignored": unsaid}
        canonical = cls.canonical(contents.arrays, lambda version: "timm", hints, size, **facts)
        found = canonical.architecture
        canonical.class_names = huggingface_config.class_names_of(config, found["num_classes"])
        v = BiTVariant(*(found[name] for name in ("blocks", "width", "version", "numerics")))
        expected = cls.architecture(v, found["channels"])
        plain = lambda value: value.upper() if value in ("same", "Same") else value  # noqa: E731
        wrong = {k: config[k] for k, e in expected.items() if k in config and plain(config[k]) != e}
        wrong.pop("output_stride", None)
        if config.get("output_stride", 32) < 2 ** (len(v.blocks) + 1):  # it would dilate instead
            wrong["output_stride"] = config["output_stride"]
        if wrong:
            raise CheckpointError(
                f"The config.json of {str(contents.path)!r} does not fit its arrays, or is of a "
                f"ResNet that is no BiT. Received: {wrong}; expected "
                f"{ {key: expected[key] for key in wrong} }."
            )
        return canonical

    @staticmethod
    def architecture(v, channels):
        """Entries of `config.json` that make Hugging Face compute as a `BiT` does."""
        is_v1 = v.version == "v1"
        return {
            "layer_type": "bottleneck" if is_v1 else "preactivation",
            # What surrounds the convolutions and the max pooling: as in the hybrids, as in BiT.
            "global_padding": "SAME" if is_v1 else None,
            "embedding_dynamic_padding": is_v1,
            "depths": list(v.blocks),
            "hidden_sizes": [v.channels_of(stage) for stage in range(1, len(v.blocks) + 1)],
            "embedding_size": v.filters_of(1),
            "num_groups": GROUPS,
            "width_factor": 1,
            "hidden_act": "relu",
            "num_channels": channels,
            "output_stride": max(2 ** (len(v.blocks) + 1), 32),
        }

    @classmethod
    def write(cls, model, arrays):
        return huggingface.with_prefix(super().write(model, arrays), model, "bit.")

    @classmethod
    def config(cls, model):
        """`config.json`."""
        stages = [f"stage{i}" for i in range(1, len(model.variant.blocks) + 1)]
        return {
            "architectures": ["BitForImageClassification" if model.num_classes else "BitModel"],
            "model_type": "bit",
            **cls.architecture(model.variant, model.channels),
            "drop_path_rate": 0.0,
            "out_features": stages[-1:],
            "out_indices": [len(stages)],
            "stage_names": ["stem", *stages],
            "torch_dtype": "float32",
            **huggingface_config.labels(model),
        }

    @staticmethod
    def processor(model):
        """`preprocessor_config.json`; what a `BitImageProcessor` is not told it crops."""
        said = huggingface_config.processor(model)
        return {"do_center_crop": False, **said, "image_processor_type": "BitImageProcessor"}


FORMATS = (HuggingFace, Timm, BigTransfer, BigVision)  # no two recognise the same file
