"""Functions of `kernels` that are faster like this with PyTorch.

Channels-last maps are given to PyTorch as they lie in memory, as a view with the channels in
front: oneDNN computes on either layout, and nothing is copied.
"""

import functools

import keras
import torch
import torch.nn.functional as F

from keras_vit.layers import fast_torch_products
from keras_vit.layers.fast_torch_products import (
    gelu,
    is_recorded,
    is_written_down,
    linear,
    product,
    takes_float32,
    takes_onednn,
)

__all__ = ["gelu", "linear"]  # and what is defined here

MANY_SCORES = 2**19  # of a head; 724 tokens have as many

# Once a block of 31 MiB was freed, glibc keeps up to 62 MiB of what is freed. Before, it returns
# every activation to the system and takes it again page by page, a sixth of an inference's time.
torch.empty(31 * 2**20, dtype=torch.uint8, device="cpu")


def applies(name):
    return True


def has_global_hooks():
    """Whether something is called at every module, as by PyTorch's counter of operations."""
    return torch.nn.modules.module._has_any_global_hook()


def are_cast(arguments, name):
    """Whether the arguments of a call are tensors of the type of this name, booleans or `None`."""
    dtype, others = getattr(torch, name), (bool, type(None))
    return all(isinstance(x, others) or getattr(x, "dtype", None) is dtype for x in arguments)


def layer_norm(x, gamma, beta, epsilon):
    """The LayerNorm of `kernels.layer_norm`; on a CPU PyTorch reads bfloat16 as it is."""
    wide = x if x.device.type == "cpu" else x.to(gamma.dtype)
    return F.layer_norm(wide, gamma.shape, gamma, beta, epsilon).to(x.dtype)


def attention(query, key, value, bias):
    """The attention of `kernels.attention`; that of `keras.ops` breaks compiled graphs."""
    if takes_float32(query):
        return attention(query.float(), key.float(), value.float(), bias).to(query.dtype)
    if bias is None and takes_products(query, key):
        return attention_by_products(query, key, value)
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    bias = None if bias is None else bias.to(query).contiguous()  # kernels of GPUs want it so
    return F.scaled_dot_product_attention(query, key, value, bias).transpose(1, 2)


def takes_products(query, key):
    """Whether PyTorch's products are faster on this CPU than its fused attention.

    They keep the weights for the backward pass, which must not be too many; exports have the fused.
    """
    if not fast_torch_products.ONEDNN_IS_FASTER or query.dtype != torch.bfloat16:
        return False
    is_here = query.device.type == "cpu" and not is_written_down()
    return is_here and query.shape[1] * key.shape[1] <= MANY_SCORES


def attention_by_products(query, key, value):
    """softmax(q kᵀ / √D_h) v, with scores and weights in the type of the inputs."""
    batch, _, heads, width = query.shape
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (query * width**-0.5, key, value))
    y = torch.softmax(q @ k.transpose(1, 2), -1) @ v
    return y.unflatten(0, (batch, heads)).transpose(1, 2)


def as_tensor(array):
    """See `kernels.as_tensor`; Keras's conversion of NumPy breaks compiled graphs."""
    array = torch.as_tensor(array) if torch.compiler.is_compiling() else array
    return keras.ops.convert_to_tensor(array)


def uniform(shape, seeds, like):
    """See `kernels.uniform`; without a seed from PyTorch's state, as Keras's dropout does it.

    Keras makes a generator of PyTorch for each call, which ends a compiled graph. For a block that
    is rematerialised PyTorch restores the state of the CPU, but not that of Apple's devices.
    """
    if seeds.get_config()["seed"] is not None:
        return keras.random.uniform(shape, 0, 1, "float32", seeds)
    device = "cpu" if like.device.type == "mps" else like.device
    return torch.rand(shape, dtype=torch.float32, device=device).to(like.device)


class Constant:
    """`kernels.Constant` with one copy for each device and type, instead of one at each call."""

    def __init__(self, array):
        self.array, self._dtype, self._copies = array, str(array.dtype), {}
        self._narrow = array.astype("float32") if self._dtype == "float64" else array

    def __reduce__(self):  # of which copies of a layer are made
        return Constant, (self.array,)

    def tensor(self, like, dtype=None):
        dtype, device = dtype or self._dtype, like.device
        # A recorded program has constants of its own; other classes of tensors have no values.
        if is_recorded() or type(like) not in (torch.Tensor, torch.nn.Parameter):
            return self._made(dtype, device)
        if (tensor := self._copies.get((dtype, device))) is None:
            with torch.inference_mode(False):  # whose tensors no gradient may keep
                tensor = self._made(dtype, device)
            if _outlives_transformations(tensor):
                self._copies[dtype, device] = tensor
        return tensor

    def _made(self, dtype, device):
        # Float64, which Apple's devices lack, stays in NumPy.
        array = self.array if dtype == "float64" else self._narrow
        return torch.as_tensor(array).to(getattr(torch, dtype)).to(device)


def _outlives_transformations(tensor):
    """Whether a tensor is no wrapper of `torch.func`, and none of a mode without values."""
    try:
        return type(tensor) is torch.Tensor and tensor.untyped_storage() is not None
    except NotImplementedError:
        return False


_computed = functools.lru_cache(maxsize=32)(lambda f, *arguments: Constant(f(*arguments)))


def computed(function, arguments, like, dtype):
    """See `kernels.computed`; of the last arguments the results are kept."""
    if torch.compiler.is_compiling():  # which would follow into NumPy
        return keras.ops.convert_to_tensor(as_tensor(function(*arguments)), dtype)
    return _computed(function, *arguments).tensor(like, dtype)


def conv(x, kernel, strides, explicit_padding):
    """The convolution of `kernels.conv`; one of single pixels is a linear map."""
    if takes_float32(x):
        wide = conv(x.float(), kernel.float(), strides, explicit_padding)
        return wide.to(x.dtype)
    if kernel.shape[0] == 1 and not is_recorded() and takes_onednn(x):
        x = x[:, ::strides, ::strides]
        return product(x.flatten(0, 2), kernel[0, 0], None).unflatten(0, x.shape[:3])
    (top, bottom), (left, right) = (
        _padding(side, size, strides, explicit_padding)
        for side, size in zip(x.shape[1:3], kernel.shape[:2])
    )
    x, kernel = x.permute(0, 3, 1, 2), kernel.permute(3, 2, 0, 1)
    if (top, left) != (bottom, right):
        x, top, left = F.pad(x, (left, right, top, bottom)), 0, 0
    return F.conv2d(x, kernel, stride=strides, padding=(top, left)).permute(0, 2, 3, 1)


def _padding(side, size, strides, explicit):
    """Pixels before and after a side; "same" puts the odd one after."""
    if explicit:
        return (size // 2, size // 2)
    total = max((-(-side // strides) - 1) * strides + size - side, 0)
    return (total // 2, total - total // 2)


def lay_out(kernel):
    values = kernel.value.data.permute(3, 2, 0, 1)
    kernel.value.data = values.contiguous(memory_format=torch.channels_last).permute(2, 3, 1, 0)


def max_pool(x, size, strides, same):
    if same:
        pads = [_padding(side, size, strides, explicit=False) for side in x.shape[1:3]]
        x = F.pad(x, (0, 0, *pads[1], *pads[0]), value=-float("inf"))
    return F.max_pool2d(x.permute(0, 3, 1, 2), size, strides).permute(0, 2, 3, 1)


def group_norm(x, groups, gamma, beta, epsilon):
    y = _GroupNorm.apply(x.permute(0, 3, 1, 2), gamma, beta, groups, epsilon)
    return y.permute(0, 2, 3, 1)


class _GroupNorm(torch.autograd.Function):
    """PyTorch's forward pass with a backward pass for channels-last maps, where its own crashes.

    With x̂ = (x - mean) r, r = 1 / deviation and g = γ dy, all of a group of n values:
    dx = r (g - Σg / n - x̂ Σ(g x̂) / n), dγ = Σ dy x̂ and dβ = Σ dy.
    """

    @staticmethod
    def forward(ctx, x, gamma, beta, groups, epsilon):
        batch, channels, height, width = x.shape
        sizes = (batch, channels, height * width, groups, epsilon)
        y, mean, r = torch.native_group_norm(x, gamma, beta, *sizes)
        ctx.save_for_backward(x, gamma, mean, r)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x, gamma, mean, r = ctx.saved_tensors
        groups = mean.shape[1]
        per_group = x.shape[1] // groups
        n = per_group * x.shape[2] * x.shape[3]
        mean, r = (v.repeat_interleave(per_group, 1) for v in (mean, r))
        sum_dy = dy.sum((2, 3))
        sum_dy_xhat = ((dy * x).sum((2, 3)) - mean * sum_dy) * r
        # dx is a multiple of dy, a multiple of x, and a number for each channel of each image.
        slope = -_in_its_group(sum_dy_xhat * gamma, groups) * r * r / n
        shift = -_in_its_group(sum_dy * gamma, groups) * r / n - slope * mean
        dx = torch.addcmul(shift[:, :, None, None], x, slope[:, :, None, None])
        dx.addcmul_(dy, (gamma * r)[:, :, None, None])
        return dx, sum_dy_xhat.sum(0), sum_dy.sum(0), None, None


def _in_its_group(values, groups):
    """The sum over the group of each channel. Shapes: (batch, channels) -> the same."""
    sums = values.unflatten(1, (groups, -1)).sum(2)
    return sums.repeat_interleave(values.shape[1] // groups, 1)
