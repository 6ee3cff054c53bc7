"""Products of matrices and GELU with PyTorch: by oneDNN, by MKL, or in float32 between casts.

Which one a CPU takes follows from its maker and its instructions, never from a timing, because a
resumed training must multiply as before. docs/performance.md has the measurements.
"""

import functools
import math

import keras
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad
from torch.utils.weak import WeakIdKeyDictionary

from keras_vit.layers import cpu

_CASTS = WeakIdKeyDictionary()  # weight -> (what it was when it was cast, the cast)


def onednn_is_faster(words):
    """Whether oneDNN multiplies float32 faster than MKL, which PyTorch takes.

    It does on AMD's CPUs with AVX-512, for which MKL has no fast code; with AVX2 alone it does not.
    """
    return "AuthenticAMD" in words and HAS_AVX512


# Constants, because PyTorch's compiler cannot read a file.
HAS_AVX512 = torch.backends.cpu.get_cpu_capability() == "AVX512"
EMULATED = {getattr(torch, dtype) for dtype in cpu.EMULATED}
ONEDNN_IS_FASTER = onednn_is_faster(cpu.words_of_cpu())


def linear(x, kernel, bias, activation, in_axes):
    """The linear map of `kernels.linear`; without gradients a GELU by tanh is part of it."""
    with_gelu = not torch.is_grad_enabled() and getattr(activation, "__name__", "") == "gelu_tanh"
    into, shape = math.prod(kernel.shape[:in_axes]), x.shape[:-in_axes]
    bias = None if bias is None else keras.ops.convert_to_tensor(bias).reshape(-1).to(x.dtype)
    y = product(x.reshape(-1, into), cast(kernel, x.dtype).reshape(into, -1), bias, with_gelu)
    y = y if activation is None or with_gelu else activation(y)
    return y.reshape(*shape, *kernel.shape[in_axes:])


def cast(weight, dtype):
    """A weight in the type of the inputs.

    Without gradients the cast of a parameter on a CPU is kept for the next call, until a call with
    gradients: it would take a sixth of the time of four images. PyTorch counts the changes of a
    tensor, but for those of its `.data` or of an array of NumPy that shares its memory.
    """
    if weight.dtype == dtype:
        return weight
    is_kept = type(weight) is torch.nn.Parameter and weight.device.type == "cpu"
    if not is_kept or is_recorded() or weight.is_inference():
        return weight.to(dtype)
    if torch.is_grad_enabled():
        _CASTS.pop(weight, None)
        return weight.to(dtype)
    state = weight._version, weight.data_ptr(), dtype
    known, short = _CASTS.get(weight, (None, None))
    if known != state:
        short = weight.detach().to(dtype)
        _CASTS[weight] = state, short
    return short


def product(x, kernel, bias, with_gelu=False):
    """x·W + b for two matrices, and its GELU, by what is the fastest on this CPU."""
    is_plain = type(x) is torch.Tensor and x.device.type == "cpu" and x.numel() > 0
    # The formats in which PyTorch records a graph lack the operation of oneDNN.
    if is_plain and not is_recorded() and not torch.is_autocast_enabled("cpu"):
        if takes_float32(x) or takes_onednn(x, with_gelu):
            wants_values = not (torch.is_grad_enabled() or any(map(_is_watched, (x, kernel, bias))))
            # PyTorch inspects the signature at each `apply`, for as long as a small product takes.
            function = _Product.forward if wants_values else _Product.apply
            return function(x, kernel, bias, with_gelu)
    return _product(x, kernel, bias, with_gelu)


def _product(x, kernel, bias, with_gelu=False):
    if takes_float32(x):
        wide = None if bias is None else bias.float()
        return _product(x.float(), kernel.float(), wide, with_gelu).to(x.dtype)
    y = x @ kernel if bias is None else torch.addmm(bias, x, kernel)
    return gelu(y, approximate=True) if with_gelu else y


def _is_watched(x):
    """Whether a tensor is one of a transformation of `torch.func`, or has a forward derivative."""
    if x is None:
        return False
    try:
        x.untyped_storage()
    except NotImplementedError:
        return True
    return forward_ad.unpack_dual(x).tangent is not None


def is_recorded():
    """Whether PyTorch writes down a graph of what is computed."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def is_written_down():
    """Whether PyTorch writes down a program that is to run elsewhere."""
    return torch.compiler.is_exporting() or torch.jit.is_tracing()


class _Product(torch.autograd.Function):
    """The product by oneDNN, whose operation has no derivatives of its own, or in float32.

    What the backward pass needs is kept in the type of the inputs. The GELU is within oneDNN's
    product where no gradient is wanted: PyTorch's own by tanh takes four times as long as the one
    by erf, a fifth of an inference in bfloat16.
    """

    @staticmethod
    def forward(x, kernel, bias, with_gelu):
        if takes_float32(x):
            return _product(x, kernel, bias, with_gelu)
        return onednn(x, kernel, bias, with_gelu)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, kernel, bias, ctx.with_gelu = inputs
        needs_x, needs_kernel, *_ = ctx.needs_input_grad
        ctx.save_for_backward(x if needs_kernel else None, kernel if needs_x else None)
        ctx.save_for_forward(x, kernel, bias)

    @staticmethod
    def backward(ctx, dy):
        x, kernel = ctx.saved_tensors
        needs_x, needs_kernel, needs_bias, _ = ctx.needs_input_grad
        dy = dy.contiguous()
        dx = product(dy, kernel.t(), None) if needs_x else None
        dkernel = product(x.t(), dy, None) if needs_kernel else None
        return dx, dkernel, dy.sum(0) if needs_bias else None, None

    @staticmethod
    def jvp(ctx, dx, dkernel, dbias, _):
        x, kernel, bias = ctx.saved_tensors
        from_x = None if dx is None else dx @ kernel
        from_kernel = None if dkernel is None else x @ dkernel
        dy = sum(part for part in (from_x, from_kernel, dbias) if part is not None)
        if not ctx.with_gelu:
            return dy
        y = _product(x, kernel, bias)
        return torch.ops.aten.gelu_backward(dy, y, approximate="tanh")

    @staticmethod
    def vmap(info, in_dims, x, kernel, bias, with_gelu):
        return torch.vmap(lambda *a: _product(*a, with_gelu), in_dims[:3])(x, kernel, bias), 0


def onednn(x, kernel, bias, with_gelu):
    """The product by oneDNN."""
    then = ("gelu", [], "tanh") if with_gelu else ("none", [], "")
    return torch.ops.mkldnn._linear_pointwise(x, kernel.t(), bias, *then)


def takes_onednn(x, with_gelu=False):
    """Whether oneDNN multiplies; its GELU is slow where there is AVX2 alone."""
    return (ONEDNN_IS_FASTER or (with_gelu and HAS_AVX512)) and has_onednn(x.dtype)


def takes_float32(x):
    """Whether a short type is multiplied in float32, between casts.

    An exported program is to run elsewhere, so that it has the type of the model.
    """
    return x.dtype in EMULATED and x.device.type == "cpu" and not is_written_down()


@functools.cache
def has_onednn(dtype):
    """Whether this PyTorch has oneDNN's linear map for this CPU and type."""
    if dtype not in (torch.float32, torch.bfloat16):
        return False
    x = torch.ones(2, 2, dtype=dtype)
    try:
        onednn(x, x, x[0], True)
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    return True


def gelu(x, approximate):
    """The GELU of `kernels.gelu`; on a CPU a sigmoid takes a third of the time of a tanh."""
    if not approximate:
        return F.gelu(x)
    scale = math.sqrt(8 / math.pi)
    if torch.compiler.is_compiling() and not torch.compiler.is_exporting():
        return x * torch.sigmoid(scale * (x + 0.044715 * x * x * x))
    is_other = x.dtype != torch.float32 or x.device.type != "cpu"
    if torch.is_grad_enabled() or is_other or is_recorded():
        return F.gelu(x, approximate="tanh")
    y = torch.addcmul(x.new_full((), scale), x, x, value=0.044715 * scale)
    return y.mul_(x).sigmoid_().mul_(x)
