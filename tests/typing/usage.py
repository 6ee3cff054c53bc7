"""Uses of the public names as mypy sees them; a line that is wrong is marked so, and must be."""

from typing import assert_type

import numpy as np

import keras_vit

images = np.zeros((2, 32, 32, 3), np.uint8)
labels = np.zeros(2, np.int64)

# Builders, and the models' own constructors
vit = keras_vit.DINOv2_S14(num_classes=10, image_size=(224, 448), pool="mean", dropout=0.1)
assert_type(vit, keras_vit.VisionTransformer)
assert_type(keras_vit.BiT_R50x1(numerics="bit", width=2.0), keras_vit.BiT)
keras_vit.ViT_B16(weights="imagenet21k/ViT-B_16", dtype="mixed_bfloat16", qkv_bias=False)
keras_vit.ViT_B16(num_clases=10)  # type: ignore[call-arg]
keras_vit.ViT_B16(pool="avg")  # type: ignore[arg-type]
keras_vit.ViT_B16(depth="12")  # type: ignore[arg-type]
keras_vit.BiT_R50x1(patch_size=8)  # type: ignore[call-arg]
keras_vit.ViT_B17()  # type: ignore[attr-defined]
keras_vit.VisionTransformer("B/16", registers=4, rotary=keras_vit.Rotary(temperature=100.0))
keras_vit.VisionTransformer("B/16", heads=4)  # type: ignore[call-arg]
keras_vit.NaFlexVisionTransformer("B/16", grid=16, mlp="swiglu")
keras_vit.build("B/16", num_classes=10)
