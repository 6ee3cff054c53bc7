"""What PyTorch does faster than `keras.ops` asks for; `kernels` has the twin of each function.

Channels-last maps are given to PyTorch as they lie in memory, as a view with the channels in
front: oneDNN computes on either layout, and nothing is copied.
"""

import functools

import torch
import torch.nn.functional as F
from torch.nn.modules import module

from keras_vit.layers import kernels
from keras_vit.layers.fast_torch_timing import is_faster

_ONEDNN_GELUS = {kernels.gelu_tanh: "tanh", kernels.gelu_erf: "none"}  # and oneDNN's names
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_any_module_is_watched = getattr(module, "_has_any_global_hook", lambda: True)  # is private
# (rows, in, out) of the products that settle which library multiplies faster
_PROBES = {torch.float32: (384, 384, 384), torch.bfloat16: (768, 384, 1536)}
_ROWS = {torch.float32: 128, torch.bfloat16: 768}  # of those that settle it for one layer


def applies():
    return True


def is_compiling():
    """Whether `torch.compile` reads along."""
    return torch.compiler.is_compiling()


def is_watched(layer):
    """Whether hooks of PyTorch wait for the calls of a layer."""
    return _any_module_is_watched() or any(getattr(layer, name, True) for name in _HOOKS)


def reshape(x, shape):
    """The reshape of `kernels.reshape`, without Keras's search for symbolic tensors."""
    return x.reshape(shape)


def product(x, kernel, bias=None, activation=None):
    """The linear map of `kernels.product`, with GELU in one pass where no gradient is asked for."""
    needs_gradient = _needs_gradient(x, kernel, bias)
    if activation in _ONEDNN_GELUS and not needs_gradient and _is_plain(x):
        if onednns_gelu_is_faster(activation, x.dtype, *kernel.shape):
            return _onednn(x, kernel, bias, "gelu", _ONEDNN_GELUS[activation])
    if not _takes_onednn(x, bias):
        x = x @ kernel if bias is None else torch.addmm(bias, x, kernel)
    elif needs_gradient:
        x = _Linear.apply(x, kernel, bias)
    else:
        x = _onednn(x, kernel, bias)
    return x if activation is None else activation(x)


def _needs_gradient(*tensors):
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def _takes_onednn(x, bias=None):
    # PyTorch itself multiplies bfloat16 by oneDNN, but adds a bias in a pass of its own.
    may_gain = x.dtype == torch.float32 or bias is not None
    return may_gain and _is_plain(x) and onednn_is_faster(x.dtype)


def _is_plain(x):
    return x.dtype in _PROBES and x.device.type == "cpu" and not torch.compiler.is_compiling()


@functools.cache
def onednn_is_faster(dtype):
    """Whether oneDNN's linear map is the faster one here. False where this PyTorch has none.

    In float32 that is so where PyTorch multiplies by MKL on a CPU for which MKL has no fast code:
    a gain of 20 % is asked for, measured once in a process, in some milliseconds. In bfloat16
    PyTorch itself takes oneDNN, so that having it is enough.
    """
    times = 1.2 if dtype == torch.float32 else 0
    return is_faster(_onednn, _plain, times, dtype, *_PROBES[dtype])


def _plain(x, kernel, bias):
    return torch.addmm(bias, x, kernel)


@functools.cache
def onednns_gelu_is_faster(activation, dtype, into, out):
    """Whether oneDNN's product with a GELU in it is the faster one; measured like the product.

    It may be so where the plain product is not: PyTorch's own approximation by tanh takes five
    times as long as its exact GELU on some CPUs. And in bfloat16 it may be slower where the plain
    product is not. Each size has its own answer: where rows of a float32 kernel are 3,072 or 5,120
    values apart, oneDNN takes twice MKL's time on an Intel CPU. Small ones share one answer.
    """
    if dtype == torch.float32 and onednn_is_faster(dtype):
        return True
    _, *least = _PROBES[dtype]
    if into * out <= least[0] * least[1] and [into, out] != least:
        return onednns_gelu_is_faster(activation, dtype, *least)
    linear = _onednn if onednn_is_faster(dtype) else _plain

    def fused(x, kernel, bias):
        return _onednn(x, kernel, bias, "gelu", _ONEDNN_GELUS[activation])

    def separate(x, kernel, bias):
        return activation(linear(x, kernel, bias))

    return is_faster(fused, separate, 1.1, dtype, _ROWS[dtype], into, out)


def _onednn(x, kernel, bias=None, then="none", algorithm=""):
    return torch.ops.mkldnn._linear_pointwise(x, kernel.t(), bias, then, [], algorithm)


class _Linear(torch.autograd.Function):
    """The product by oneDNN, whose operation has no gradient of its own."""

    @staticmethod
    def forward(ctx, x, kernel, bias):
        needs_x, needs_kernel, _ = ctx.needs_input_grad
        ctx.save_for_backward(x if needs_kernel else None, kernel if needs_x else None)
        return _onednn(x, kernel, bias)

    @staticmethod
    def backward(ctx, dy):
        x, kernel = ctx.saved_tensors
        dy = dy.contiguous()
        needs_x, needs_kernel, needs_bias = ctx.needs_input_grad
        return (
            product(dy, kernel.t()) if needs_x else None,
            product(x.t(), dy) if needs_kernel else None,
            dy.sum(0) if needs_bias else None,
        )


def layer_norm(x, gamma, beta, epsilon):
    """The LayerNorm of `kernels.layer_norm`, without a float32 copy of a shorter `x` on the CPU."""
    if x.device.type != "cpu" or x.dtype == torch.float16:
        return F.layer_norm(x.float(), gamma.shape, gamma, beta, epsilon).to(x.dtype)
    return F.layer_norm(x, gamma.shape, gamma, beta, epsilon)


def attention(query, key, value):
    """The attention of `kernels.attention` without bias, on the heads as they lie in memory."""
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    return F.scaled_dot_product_attention(query, key, value).transpose(1, 2)


def block(x, norms, linears):
    """The Transformer block of `TransformerBlock.call`, which says the same by layers.

    Args:
        norms: gamma, beta and epsilon of each.
        linears: kernel, bias or None, and activation of query, key, value, out and the MLP's two.
    """
    *projections, (out, *more), dense_1, dense_2 = linears
    q, k, v = _after_norm(x, norms[0], [_flat(*each) for each in projections])
    q, k, v = (y.view(*x.shape[:2], *each[0].shape[1:]) for y, each in zip((q, k, v), projections))
    y = attention(q, k, v).flatten(0, 1).flatten(1)
    x = x + product(y, out.flatten(0, 1), *more).view(x.shape)  # Eq. 2
    (y,) = _after_norm(x, norms[1], [dense_1])
    return x + product(y, *dense_2).view(x.shape)  # Eq. 3


def _flat(kernel, bias, activation):
    return kernel.flatten(1), None if bias is None else bias.flatten(), activation


def _after_norm(x, norm, linears):
    """Linear maps of the normed tokens. Shapes: (batch, tokens, dim) -> (batch * tokens, out)."""
    matrices, biases, activations = zip(*linears)
    if _is_plain(x) and _needs_gradient(x, *norm[:2], *matrices, *biases):
        ys = _AfterNorm.apply(x, *norm, *matrices, *biases)
        return [y if then is None else then(y) for y, then in zip(ys, activations)]
    y = layer_norm(x, *norm).flatten(0, 1)
    return [product(y, *each) for each in linears]


class _AfterNorm(torch.autograd.Function):
    """Linear maps of the normed tokens, which the gradient norms again instead of keeping them.

    That takes an eighth off the activations of a block, and next to no time.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x, gamma, beta, epsilon, *linears):
        matrices, biases = _halves(linears)
        y = layer_norm(x, gamma, beta, epsilon).flatten(0, 1)
        return tuple(product(y, *each) for each in zip(matrices, biases))

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, gamma, beta, ctx.epsilon, *linears = inputs
        ctx.save_for_backward(x, gamma, beta, *_halves(linears)[0])

    @staticmethod
    def backward(ctx, *dys):
        x, gamma, beta, *matrices = ctx.saved_tensors
        *needs_norm, _ = ctx.needs_input_grad[:4]
        needs_kernel, needs_bias = _halves(ctx.needs_input_grad[4:])
        y, mean, r = torch.native_layer_norm(x, gamma.shape, gamma, beta, ctx.epsilon)
        y = y.flatten(0, 1).t()
        dkernels = [product(y, dy) if needs else None for dy, needs in zip(dys, needs_kernel)]
        dbiases = [dy.sum(0) if needs else None for dy, needs in zip(dys, needs_bias)]
        if not any(needs_norm):
            return None, None, None, None, *dkernels, *dbiases
        dy = sum(product(dy, kernel.t()) for dy, kernel in zip(dys, matrices)).view(x.shape)
        backward = torch.ops.aten.native_layer_norm_backward
        dnorm = backward(dy, x, gamma.shape, mean, r, gamma, beta, needs_norm)
        return *dnorm, None, *dkernels, *dbiases


def _halves(values):
    return values[: len(values) // 2], values[len(values) // 2 :]


def conv(x, kernel, strides, explicit_padding):
    """The convolution of `kernels.conv`; one of single pixels is a linear map."""
    if kernel.shape[0] == 1 and _takes_onednn(x):
        x = x[:, ::strides, ::strides]
        return product(x.flatten(0, 2), kernel[0, 0]).unflatten(0, x.shape[:3])
    (top, bottom), (left, right) = (
        _padding(side, size, strides, explicit_padding)
        for side, size in zip(x.shape[1:3], kernel.shape[:2])
    )
    x, kernel = x.permute(0, 3, 1, 2), kernel.permute(3, 2, 0, 1)
    if (top, left) != (bottom, right):
        x, top, left = F.pad(x, (left, right, top, bottom)), 0, 0
    return F.conv2d(x, kernel, stride=strides, padding=(top, left)).permute(0, 2, 3, 1)


def _padding(side, size, strides, explicit):
    """Zeros before and after; "same" puts the odd one after."""
    if explicit:
        return (size // 2, size // 2)
    total = max((-(-side // strides) - 1) * strides + size - side, 0)
    return (total // 2, total - total // 2)


def lay_out(kernel):
    """Moves the values of a variable to the order in which `conv` reads them; its shape stays."""
    values = kernel.value.data.permute(3, 2, 0, 1)
    kernel.value.data = values.contiguous(memory_format=torch.channels_last).permute(2, 3, 1, 0)


def max_pool(x, size, strides, same):
    """The pooling of `kernels.max_pool`."""
    if same:
        pads = [_padding(side, size, strides, explicit=False) for side in x.shape[1:3]]
        x = F.pad(x, (0, 0, *pads[1], *pads[0]), value=-float("inf"))
    return F.max_pool2d(x.permute(0, 3, 1, 2), size, strides).permute(0, 2, 3, 1)


def group_norm(x, groups, gamma, beta, epsilon):
    """The group norm of `kernels.group_norm`."""
    y = _GroupNorm.apply(x.permute(0, 3, 1, 2), gamma, beta, groups, epsilon)
    return y.permute(0, 2, 3, 1)


class _GroupNorm(torch.autograd.Function):
    """PyTorch's own forward pass; its backward pass crashes on maps with channels last.

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
