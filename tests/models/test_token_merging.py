"""Token merging against its definition, pair by pair, and what it must leave as it is."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import inspection
from tests import definitions
from tests.arrays import assert_close, assert_same, largest, to_numpy, values
from tests.definitions import below
from tests.support import forward, precision, randomize, refuses, slow_unless_torch, tiny_vit

SMALL = {"image_size": (16, 12), "patch_size": 4, "width": 16, "mlp_dim": 24, "name": "small"}
IMAGES = np.random.default_rng(0).uniform(-1, 1, (2, 16, 12, 3))


def model(dtype=None, **options):
    return randomize(tiny_vit(dtype=dtype, **SMALL, **options))


def attention(w, x, size):
    """With keys that count as often as they stand for tokens; and the mean of the keys' heads."""
    bias = np.zeros((w["query/kernel"].shape[1], x.shape[0], 1)) + np.log(size)
    keys = np.einsum("td,dhk->thk", x, w["key/kernel"]) + w["key/bias"]
    return definitions.attention(w, x[None], bias=bias)[0], keys.mean(axis=1)


def merge(x, size, keys, count, protected):
    """Of one image, by lists: (token, size, place) for each that is left."""
    keys = keys / np.linalg.norm(keys, axis=1, keepdims=True)
    count = min(count, (len(x) - protected) // 2)
    pairs = []
    for i in range(0, len(x), 2):
        alike = [(-np.inf if j < protected else keys[i] @ keys[j]) for j in range(1, len(x), 2)]
        best = int(np.argmax(alike))
        pairs.append((-np.inf if i < protected else alike[best], i, 2 * best + 1))
    pairs.sort(reverse=True)
    sums, sizes = x * size[:, None], size.copy()
    for _, i, j in pairs[:count]:
        sums[j], sizes[j] = sums[j] + sums[i], sizes[j] + sizes[i]
    even = [i for _, i, _ in pairs[count:]]
    even = sorted(even) if protected else even
    odd = list(range(1, len(x), 2))
    order = list(range(protected)) if count else list(range(len(x)))
    order += [i for i in even + odd if i >= protected] if count else []
    return (sums / sizes[:, None])[order], sizes[order]


def logits(w, images, v, counts, grid):
    """Of the whole network, an image at a time."""
    encoder = below(w, "patch_encoder")
    results = []
    for patches in definitions.patches(images, v.patch_size):
        x = patches @ encoder["projection/kernel"] + encoder["projection/bias"]
        tokens = [encoder[t][0] for t in ("class_token", "registers") if t in encoder]
        x = np.concatenate([*tokens, x]) + encoder["position/embedding"][0]
        size = np.ones(len(x))
        for i, count in enumerate(counts):
            block = below(w, f"block_{i}")
            first = below(block, "norm_1")
            y = x if v.block == "post_norm" else definitions.norm(first, x)
            y, keys = attention(below(block, "attention"), y, size)
            x = x + (definitions.norm(first, y) if v.block == "post_norm" else y)
            x, size = merge(x, size, keys, count, v.learned_tokens)
            mlp, last = below(block, "mlp"), below(block, "norm_2")
            if v.block == "post_norm":
                x = x + definitions.norm(last, definitions.mlp(mlp, x))
            else:
                x = x + definitions.mlp(mlp, definitions.norm(last, x))
        x = definitions.layer_norm(below(w, "norm"), x)
        if v.pool == "map":  # every token as often as it counts
            again = np.repeat(x, size.astype(int), axis=0)[None]
            y = definitions.attention_pool(below(w, "pool"), again)[0]
        elif v.pool == "mean":
            y = np.repeat(x, size.astype(int), axis=0)[v.learned_tokens :].mean(axis=0)
        else:
            y = x[0]
        results.append(y @ w["head/kernel"] + w["head/bias"])
    return np.stack(results)


@pytest.mark.parametrize(
    "counts, options",
    [
        ((3, 2), {}),
        ((0, 20), {"registers": 2, "pool": "mean", "class_token": True}),
        pytest.param((5, 0), {"pool": "map", "registers": 1}, marks=slow_unless_torch),
        pytest.param((2, 2), {"pool": "mean", "block": "post_norm"}, marks=slow_unless_torch),
    ],
    ids=str,
)
def test_equals_its_definition(counts, options):
    with precision("float64"):
        whole = model("float64", **options)
        merged = keras_vit.merge_tokens(whole, counts)
        w = values(merged)
        assert_same({name: w[name] for name in values(whole)}, values(whole))
        expected = logits(w, IMAGES, whole.variant, counts, (4, 3))
        assert largest(to_numpy(forward(whole, IMAGES)) - expected) > 1e-3, "merging must show"
        assert_close(forward(merged, IMAGES), expected, 1e-12)


def test_is_saved_trained_and_undone(reopened):
    whole = model()
    merged = keras_vit.merge_tokens(whole, 3)
    images = IMAGES.astype("float32")
    again = reopened(merged)
    assert_close(forward(again, images), forward(merged, images), 1e-5)
    assert again.token_merging == merged.token_merging == 3
    assert_close(forward(keras_vit.merge_tokens(again, 0), images), forward(whole, images), 1e-6)
    again.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    assert np.isfinite(again.train_on_batch(images, np.array([0, 1])))
    refuses(r"no place in the image.*merge_tokens", inspection.attention_maps, merged, images)


REFUSED = [
    ({"rotary": "axial"}, "rotary"),
    ({"position": "relative"}, "relative"),
    ({"position": "relative_2d"}, "relative"),
    ({"position_at": "shared"}, "position_at='shared'"),
    ({"block": "parallel"}, "parallel"),
    ({"pool": None}, "pool=None"),
    ({"pool": "first", "class_token": False}, "pool='first'"),
    ({"variable_size": True}, "each image size"),
]


@pytest.mark.any_backend
@pytest.mark.parametrize("options, reason", REFUSED, ids=str)
def test_what_cannot_be_merged_is_refused(options, reason):
    refuses(f"token_merging=2 cannot be: .*{reason}", keras_vit.merge_tokens, model(**options), 2)


@pytest.mark.any_backend
@pytest.mark.parametrize("r", [-1, True, 1.5, (1, 2, 3)])
def test_numbers_out_of_range(r):
    refuses(r"for each of 2 blocks\. Received: token_merging=", model, token_merging=r)
