"""npz files of google-research/vision_transformer, which are read and written.

A row of `ROWS` is (name in the file, path of the model's variable, how the array lies in the file).
`{i}` is any number. `[2|1]` is either number: files exist in two generations, which number the
modules of a block differently; both are read, and the first, as published, is written.

The functions make the rows of a layer: `flax_norm("LayerNorm_0", "norm_1")` is
("LayerNorm_0/scale", "norm_1/gamma", SAME) and ("LayerNorm_0/bias", "norm_1/beta", SAME).
"""

from keras_vit.weights import tables
from keras_vit.weights.family import DIFFERS, Family
from keras_vit.weights.tables import FLAX_PATCHES, SAME, VECTOR, Layout, Table

BLOCK = "Transformer/encoderblock_{i}/"
UNIT = "block{s}/unit{u}/"
# (C,) of a norm, which is published as (1, 1, 1, C).
GROUP_NORM = Layout(read=VECTOR.read, write=lambda a: a.reshape(1, 1, 1, -1))

RESNET_ROWS = (
    (UNIT + "conv{n}/kernel", "stage_{s}_unit_{u}/conv{n}/kernel", SAME),
    (UNIT + "conv_proj/kernel", "stage_{s}_unit_{u}/conv_proj/kernel", SAME),
    *tables.flax_norm("gn_root", "root/norm", GROUP_NORM),
    *tables.flax_norm(UNIT + "gn{n}", "stage_{s}_unit_{u}/norm{n}", GROUP_NORM),
    *tables.flax_norm(UNIT + "gn_proj", "stage_{s}_unit_{u}/norm_proj", GROUP_NORM),
)
ROWS = (
    ("cls", "patch_encoder/class_token", SAME),
    ("embedding/kernel", "patch_encoder/projection/kernel", FLAX_PATCHES),
    ("embedding/bias", "patch_encoder/projection/bias", SAME),
    ("Transformer/posembed_input/pos_embedding", "patch_encoder/position/embedding", SAME),
    *tables.flax_norm(BLOCK + "LayerNorm_0", "block_{i}/norm_1"),
    *tables.flax_attention(BLOCK + "MultiHeadDotProductAttention_[1|0]", "block_{i}/attention"),
    *tables.flax_norm(BLOCK + "LayerNorm_[2|1]", "block_{i}/norm_2"),
    *tables.flax_dense(BLOCK + "MlpBlock_[3|0]/Dense_0", "block_{i}/mlp/dense_1"),
    *tables.flax_dense(BLOCK + "MlpBlock_[3|0]/Dense_1", "block_{i}/mlp/dense_2"),
    *tables.flax_norm("Transformer/encoder_norm", "norm"),
    *tables.flax_dense("pre_logits", "pre_logits"),
    *tables.flax_dense("head", "head"),
    ("conv_root/kernel", "root/conv/kernel", SAME),  # of a hybrid
    *RESNET_ROWS,
)


class Google(Family):
    def obstacles(self, model):
        """The authors' code takes the mean over the class token, too; a model here does not."""
        v = model.variant
        mixed = v.pool == "mean" and v.class_token and DIFFERS
        return super().obstacles(model) | {"pool='mean' with a class token": mixed}


FAMILY = Google(
    name="google-research/vision_transformer",
    sign=r"Transformer/",  # a file with such a name has this format
    table=Table(*ROWS),
    defaults={  # what the authors' code computes, and no array shows
        "interpolation": "align_corners",
        "gelu": "tanh",
        "epsilon": 1e-6,
        "stem_numerics": "google",
    },
    config={  # key of a config.json beside the file -> argument of the model
        "hidden_size": "width",
        "classifier": (
            "pool",
            {"token": "token", "gap": "mean", "token_unpooled": None, "unpooled": None},
        ),
        "image": "image_size",
    },
    # To write a model: values that a file can store, and those that the authors' code computes.
    can_store={"pool": ("token", "mean", "first", None), "registers": (0,)},
    can_compute={
        "pool": ("token", "mean", None),  # "first" is of big_vision alone
        "gelu": ("tanh",),
        "epsilon": (1e-6,),
        "stem_numerics": ("google",),
        "norm_after_pool": (False,),
        "qkv_bias": (True,),
    },
)
