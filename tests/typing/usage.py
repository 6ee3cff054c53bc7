"""Uses of the public names as mypy sees them; a line that is wrong is marked so, and must be."""

from typing import assert_type

import numpy as np

import keras_vit
from keras_vit import data, evaluation, inspection, recipes, training, weights

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
inspection.rollout_maps(keras_vit.build("B/16", num_classes=10), images)

# Weights
loaded = keras_vit.from_checkpoint("hf://google/vit-base-patch16-224", num_classes=10)
report = keras_vit.load_weights(vit, "model.safetensors", fresh_head=True)
assert_type(report, keras_vit.LoadReport)
keras_vit.save_weights(vit, "folder", format="huggingface")
keras_vit.save_weights(vit, "folder", format="flax")  # type: ignore[arg-type]
assert_type(keras_vit.resize(vit, image_size=(384, 512)), keras_vit.VisionTransformer)
keras_vit.export(vit, "model.onnx", check=True)
keras_vit.merge_tokens(vit, "8")  # type: ignore[arg-type]
names = [row.name for row in weights.checkpoints(variant="B/16")]
keras_vit.list_weights("B16", images=224)  # type: ignore[call-arg]
weights.fetch("hf://org/repo", offline=True).exists()

# Data, recipes, training
best: data.Prediction = keras_vit.predict(loaded, ["cat.jpg", images[0]], top=3)[0][0]
assert_type(best.probability, float)
digits = data.load("digits", image_size=16)
recipe = recipes.get("digits").scale(batch_size=32).replace(mixup=0.2)
assert_type(recipe, recipes.Recipe)
recipe.scale(batch_sizes=32)  # type: ignore[call-arg]
recipes.finetune("cifar100", variant="B/16", source="vit_jax").compile(vit)
training.fit(vit, data.pipeline(digits, recipe), "output", steps=10)
training.fit(vit, digits)  # type: ignore[call-arg]
training.fit(vit, digits, "output", epochs="10")  # type: ignore[arg-type]
training.freeze(vit, "block_*")

# Evaluation and inspection
evaluation.evaluate(vit, (images, labels), top=5, confusion=False)
evaluation.evaluate(vit, (images, labels), topk=5)  # type: ignore[call-arg]
evaluation.knn(images, labels, images, labels, k=3)
inspection.attention_maps(loaded, images, query="class").mean()
inspection.attention_maps(vit, images, block="last")  # type: ignore[arg-type]
inspection.atention_maps(vit, images)  # type: ignore[attr-defined]
