"""npz files of google-research/vision_transformer, which are read and written.

They exist in two generations, which number the modules of a block differently (`LayerNorm_2`,
`MlpBlock_3` and `MultiHeadDotProductAttention_1` in the published ones): both are read, and the
published one is written.

A row of `ROWS` is (name in the file, path of the model's variable, `Layout` of the array); of
`[2|1]` both are read and the first is written. The loops that apply the rows to each array of a
file are `Table.read` and `Table.write` in weights/tables.py. What arrays do not tell is in
`defaults`, or in a `config.json`. `can_store` are the values that a file can have,
`can_compute` those that the authors' code has.
"""

from keras_vit.models.resize_weights import PROJECTION
from keras_vit.weights import tables
from keras_vit.weights.family import Family, reasons
from keras_vit.weights.model_arguments import POSITION
from keras_vit.weights.tables import FLAX_PATCHES, SAME, VECTOR, Layout, Table

BLOCK = "Transformer/encoderblock_{i}/"
UNIT = "block{s}/unit{u}/"
GROUP_NORM = Layout(None, VECTOR.read, lambda a: a.reshape(1, 1, 1, -1))  # as published

RESNET_ROWS = (
    (UNIT + "conv{n}/kernel", "stage_{s}_unit_{u}/conv{n}/kernel", SAME),
    (UNIT + "conv_proj/kernel", "stage_{s}_unit_{u}/conv_proj/kernel", SAME),
    *tables.flax_norm("gn_root", "root/norm", GROUP_NORM),
    *tables.flax_norm(UNIT + "gn{n}", "stage_{s}_unit_{u}/norm{n}", GROUP_NORM),
    *tables.flax_norm(UNIT + "gn_proj", "stage_{s}_unit_{u}/norm_proj", GROUP_NORM),
)
ROWS = (
    ("cls", "patch_encoder/class_token", SAME),
    ("embedding/kernel", PROJECTION, FLAX_PATCHES),
    ("embedding/bias", "patch_encoder/projection/bias", SAME),
    ("Transformer/posembed_input/pos_embedding", POSITION, SAME),
    *tables.flax_norm(BLOCK + "LayerNorm_0", "block_{i}/norm_1"),
    *tables.flax_attention(BLOCK + "MultiHeadDotProductAttention_[1|0]", "block_{i}/attention"),
    *tables.flax_norm(BLOCK + "LayerNorm_[2|1]", "block_{i}/norm_2"),
    *tables.flax_dense(BLOCK + "MlpBlock_[3|0]/Dense_0", "block_{i}/mlp/dense_1"),
    *tables.flax_dense(BLOCK + "MlpBlock_[3|0]/Dense_1", "block_{i}/mlp/dense_2"),
    *tables.flax_norm("Transformer/encoder_norm", "norm"),
    *tables.flax_dense("pre_logits", "pre_logits"),
    *tables.flax_dense("head", "head"),
    ("conv_root/kernel", "root/conv/kernel", SAME),
    *RESNET_ROWS,
)


class Google(Family):
    def not_computable(self, model):
        """As of every family, and the mean, which the authors take over the class token too."""
        v = model.variant
        mixed = v.pool == "mean" and v.class_token
        return super().not_computable(model) + reasons({"pool='mean' with a class token": mixed})


FAMILY = Google(
    name="google-research/vision_transformer",
    sign=r"Transformer/",
    table=Table(*ROWS),
    defaults={
        "interpolation": "align_corners",
        "gelu": "tanh",
        "epsilon": 1e-6,
        "stem_numerics": "google",
    },
    config={
        "hidden_size": "width",
        "classifier": (
            "pool",
            {"token": "token", "gap": "mean", "token_unpooled": None, "unpooled": None},
        ),
        "image": "image_size",
    },
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
