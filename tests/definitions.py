"""The equations of the paper in NumPy, as plainly as they can be written.

Each function takes the weights of a layer (path below the layer -> array) and its inputs.
"""

import math

import numpy as np


def angles(grid, head_width, rotary):
    """The angles of each pair of values of each patch, pair by pair, as `Rotary` describes them."""
    table = np.zeros((grid[0] * grid[1], head_width // 2))
    for row in range(grid[0]):
        for column in range(grid[1]):
            place = [row, column]
            for axis in (0, 1):
                if rotary.places == "centered":
                    middle = (place[axis] + 0.5 + rotary.offset) / grid[axis]
                    place[axis] = 2 * math.pi * (2 * middle - 1)
                else:
                    place[axis] += rotary.offset
                    if rotary.reference is not None:
                        place[axis] *= rotary.reference[axis] / grid[axis]
            first, second = place if rotary.order == "rows" else place[::-1]
            for i in range(head_width // 4):
                frequency = rotary.temperature ** (-4 * i / head_width)
                table[row * grid[1] + column, i] = first * frequency
                table[row * grid[1] + column, head_width // 4 + i] = second * frequency
    return table


def rotated(x, angles, pairs):
    """Each pair of values as a complex number that is turned. (..., D_h), (..., D_h / 2)."""
    half = x.shape[-1] // 2
    a, b = (x[..., :half], x[..., half:]) if pairs == "halves" else (x[..., ::2], x[..., 1::2])
    turned = (a + 1j * b) * np.exp(1j * angles)
    parts = [turned.real, turned.imag]
    if pairs == "halves":
        return np.concatenate(parts, axis=-1)
    return np.stack(parts, axis=-1).reshape(x.shape)


def relative_2d(weights, num_heads, grid, class_token):
    """The bias of each pair of tokens, by two loops. Returns (heads, T, T)."""
    places = [(row, column) for row in range(grid[0]) for column in range(grid[1])]
    table, learned = weights["table"], int(class_token)
    bias = np.zeros((num_heads, len(places) + learned, len(places) + learned))
    for i, (y, x) in enumerate(places):
        for j, (v, u) in enumerate(places):
            at = (y - v + grid[0] - 1) * (2 * grid[1] - 1) + (x - u + grid[1] - 1)
            bias[:, i + learned, j + learned] = table[at]
    if class_token:
        bias[:, 0, 1:], bias[:, 1:, 0] = table[-3][:, None], table[-2][:, None]
        bias[:, 0, 0] = table[-1]
    return bias


def below(weights, name):
    """The weights of the sublayer `name`."""
    prefix = f"{name}/"
    return {path[len(prefix) :]: w for path, w in weights.items() if path.startswith(prefix)}


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def gelu(x, kind):
    if kind == "erf":
        return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    if kind in ("silu", "quick_gelu"):
        return x / (1 + np.exp(-x if kind == "silu" else -1.702 * x))
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def layer_norm(weights, x, epsilon=1e-6):
    variance = x.var(axis=-1, keepdims=True)
    normal = (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(variance + epsilon)
    return normal * weights["gamma"] + weights["beta"]


def rms_norm(weights, x, epsilon=1e-6):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + epsilon) * weights["gamma"]


def norm(weights, x, epsilon=1e-6):
    """The norm whose weights these are; the tokens themselves where there are none."""
    if not weights:
        return x
    return (layer_norm if "beta" in weights else rms_norm)(weights, x, epsilon)


def relative_bias(q, table):
    """q · r(distance of key and query), by a double loop. Returns (batch, heads, T, T)."""
    batch, tokens, heads, _ = q.shape
    bias = np.zeros((batch, heads, tokens, tokens))
    for i in range(tokens):
        for j in range(tokens):
            bias[:, :, i, j] = q[:, i] @ table[j - i + tokens - 1]
    return bias


def attention_parts(weights, x, memory=None, bias=None, distances=None, turn=lambda x: x, a=None):
    """The outputs (Eq. 5 to 8) and the weights A, which may be given; `turn` is for rotary ones."""
    memory = x if memory is None else memory

    def project(name, tokens):
        head = np.einsum("btd,dhk->bthk", tokens, weights[f"{name}/kernel"])
        return head + weights.get(f"{name}/bias", 0.0)

    q, k, v = project("query", x), project("key", memory), project("value", memory)
    q, k = norm(below(weights, "query_norm"), q), norm(below(weights, "key_norm"), k)
    q, k = turn(q) / math.sqrt(q.shape[-1]), turn(k)
    scores = np.einsum("bthd,bshd->bhts", q, k)
    scores = scores if bias is None else scores + bias
    scores = scores if distances is None else scores + relative_bias(q, distances)
    a = softmax(scores) if a is None else a
    heads = np.einsum("bhts,bshd->bthd", a, v)
    heads = norm(below(weights, "norm"), heads.reshape(*x.shape)).reshape(heads.shape)
    out = np.einsum("bthk,hkd->btd", heads, weights["out/kernel"])
    return out + weights.get("out/bias", 0.0), a


def attention(weights, x, memory=None, bias=None, distances=None):
    return attention_parts(weights, x, memory, bias, distances)[0]


def mlp(weights, x, kind="tanh"):
    def linear(name, x):
        return x @ weights[f"{name}/kernel"] + weights.get(f"{name}/bias", 0.0)

    if "gate/kernel" in weights:
        hidden = gelu(linear("gate", x), kind) * linear("dense_1", x)
    else:
        hidden = gelu(linear("dense_1", x), kind)
    return linear("dense_2", norm(below(weights, "norm"), hidden))


def block(weights, x, distances=None, bias=None, kind="tanh", epsilon=1e-6):
    """Eq. 2 and 3."""
    normal = norm(below(weights, "norm_1"), x, epsilon)
    y = attention(below(weights, "attention"), normal, bias=bias, distances=distances)
    x = x + y * weights.get("layer_scale_1/gamma", 1.0)
    y = mlp(below(weights, "mlp"), norm(below(weights, "norm_2"), x, epsilon), kind)
    return x + y * weights.get("layer_scale_2/gamma", 1.0)


def post_norm_block(weights, x):
    """The norms after attention and MLP."""
    y = attention(below(weights, "attention"), x)
    x = x + norm(below(weights, "norm_1"), y)
    return x + norm(below(weights, "norm_2"), mlp(below(weights, "mlp"), x))


def add_norm_block(weights, x):
    """The norms after the sums (Vaswani et al., 2017)."""
    x = norm(below(weights, "norm_1"), x + attention(below(weights, "attention"), x))
    return norm(below(weights, "norm_2"), x + mlp(below(weights, "mlp"), x))


def axial_bias(grid, axis):
    """Each patch attends to those of its row or column: every other score is minus infinity."""
    place = np.mgrid[: grid[0], : grid[1]].reshape(2, -1)[("row", "column").index(axis)]
    return np.where(place[:, None] == place, 0.0, -np.inf)


def axial_attention(weights, x, grid, axis):
    return attention(weights, x, bias=axial_bias(grid, axis))


def axial_block(weights, x, grid, axis):
    return block(weights, x, bias=axial_bias(grid, axis))


def parallel_block(weights, x):
    """Attention and MLP of the same tokens."""
    y = norm(below(weights, "norm_1"), x)
    y = attention(below(weights, "attention"), y) + mlp(below(weights, "mlp"), y)
    return x + y * weights.get("layer_scale_1/gamma", 1.0)


def attention_pool(weights, x, kind="tanh", epsilon=1e-6):
    probe = np.repeat(weights["probe"], len(x), axis=0)
    y = attention(below(weights, "attention"), probe, memory=x)
    normal = layer_norm(below(weights, "norm"), y, epsilon)
    return (y + mlp(below(weights, "mlp"), normal, kind))[:, 0]


def probe_pool(weights, x):
    """The probe is the query: its heads may be told by an identity instead of a projection."""
    width, heads = weights["attention/key/kernel"].shape[:2]
    identity = np.eye(width).reshape(width, heads, -1)
    probe = np.repeat(weights["probe"], len(x), axis=0)
    asking = {**below(weights, "attention"), "query/kernel": identity}
    return attention(asking, probe, memory=x)[:, 0]


def patches(images, patch_size):
    """Cut out one by one."""
    p_h, p_w = patch_size
    _, height, width, _ = images.shape
    cut = [
        images[:, y : y + p_h, x : x + p_w].reshape(len(images), -1)
        for y in range(0, height, p_h)
        for x in range(0, width, p_w)
    ]
    return np.stack(cut, axis=1)


def sincos_2d(grid, width):
    """Value by value, from the formula of the "better plain ViT" paper's code."""
    rows, columns = grid
    quarter = width // 4
    table = np.zeros((rows * columns, width))
    for y in range(rows):
        for x in range(columns):
            for i in range(quarter):
                w = 1 / 10_000 ** (i / (quarter - 1))
                at = y * columns + x
                table[at, i] = math.sin(x * w)
                table[at, quarter + i] = math.cos(x * w)
                table[at, 2 * quarter + i] = math.sin(y * w)
                table[at, 3 * quarter + i] = math.cos(y * w)
    return table


def position_table(weights, kind, grid, width, learned_tokens):
    """E_pos: (tokens, width)."""
    if kind == "learned_1d":
        return weights["embedding"][0]
    if kind == "sincos_2d":
        table = sincos_2d(grid, width)
    else:
        rows, columns = weights["rows"], weights["columns"]
        table = np.array([np.concatenate([x, y]) for y in rows for x in columns])
    return np.concatenate([np.zeros((learned_tokens, width)), table])


def vision_transformer(weights, images, variant, grid):
    """The whole network (Eq. 1 to 4), with every choice of `Variant`."""
    v = variant

    def position(name):
        return position_table(below(weights, name), v.position, grid, v.width, v.learned_tokens)

    x = patches(images, v.patch_size) @ weights["patch_encoder/projection/kernel"]
    x = x + weights["patch_encoder/projection/bias"]
    if v.class_token:
        first = np.repeat(weights["patch_encoder/class_token"], len(x), axis=0)
        x = np.concatenate([first, x], axis=1)
    if v.registers:
        tokens = np.repeat(weights["patch_encoder/registers"], len(x), axis=0)
        cut = int(v.class_token)
        x = np.concatenate([x[:, :cut], tokens, x[:, cut:]], axis=1)
    if v.position_at == "input" and v.position != "none":
        x = x + position("patch_encoder/position")
    for i in range(v.block_layers):
        name = "position" if v.position_at == "shared" else f"position_{i}"
        relative = None
        if v.position == "relative":
            relative = weights[f"{name}/embedding"]
        elif v.position_at != "input" and v.position != "none":
            x = x + position(name)
        of_block = below(weights, f"block_{i}")
        if v.block == "axial":
            x = axial_block(of_block, x, grid, ("row", "column")[i % 2])
        elif v.block == "add_norm":
            x = add_norm_block(of_block, x)
        else:
            x = block(of_block, x, relative, kind=v.gelu, epsilon=v.epsilon)
    if not v.norm_after_pool:
        x = norm(below(weights, "norm"), x, v.epsilon)
    if v.pool == "token":
        x = x[:, 0]
    elif v.pool == "mean":
        x = x[:, int(v.class_token) + v.registers :].mean(axis=1)
    elif v.pool == "map":
        x = attention_pool(below(weights, "pool"), x, v.gelu, v.epsilon)
    if v.norm_after_pool:
        x = layer_norm(below(weights, "norm"), x, v.epsilon)
    if v.representation_size:
        x = np.tanh(x @ weights["pre_logits/kernel"] + weights["pre_logits/bias"])
    if "head/kernel" in weights:
        x = x @ weights["head/kernel"] + weights["head/bias"]
    return x
