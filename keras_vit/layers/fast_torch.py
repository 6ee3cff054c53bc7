"""Functions of `kernels` that are faster like this with PyTorch.

Channels-last maps are given to PyTorch as they lie in memory, as a view with the channels in
front: oneDNN computes on either layout, and nothing is copied.
"""

import functools
import math
import pathlib
import platform

import keras
import torch
import torch.nn.functional as F
from torch.utils.weak import WeakIdKeyDictionary

# Once a block of 31 MiB was freed, glibc keeps up to 62 MiB of what is freed. Before, it returns
# every activation to the system and takes it again page by page, a sixth of an inference's time.
torch.empty(31 * 2**20, dtype=torch.uint8, device="cpu")

_CASTS = WeakIdKeyDictionary()  # weight -> (what it was when it was cast, the cast)


def applies(name):
    return True


def linear(x, kernel, bias, activation, contracted):
    """The linear map of `kernels.linear`; without gradients a GELU by tanh is part of it."""
    with_gelu = not torch.is_grad_enabled() and getattr(activation, "__name__", "") == "gelu_tanh"
    into, shape = math.prod(kernel.shape[:contracted]), x.shape[:-contracted]
    bias = None if bias is None else keras.ops.convert_to_tensor(bias).reshape(-1).to(x.dtype)
    y = product(x.reshape(-1, into), cast(kernel, x.dtype).reshape(into, -1), bias, with_gelu)
    y = y if activation is None or with_gelu else activation(y)
    return y.reshape(*shape, *kernel.shape[contracted:])


def cast(weight, dtype):
    """A weight in the type of the inputs.

    Without gradients the cast of a parameter on a CPU is kept for the next call, until a call with
    gradients: it would take a sixth of the time of four images. PyTorch counts the changes of a
    tensor, but for those of its `.data` or of an array of NumPy that shares its memory.
    """
    if weight.dtype == dtype:
        return weight
    is_kept = type(weight) is torch.nn.Parameter and weight.device.type == "cpu"
    if not is_kept or _is_recorded() or weight.is_inference():
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
    """x·W + b for two matrices, and its GELU, by oneDNN where that is the faster one."""
    if _takes_onednn(x) and (with_gelu or onednn_is_faster()):
        return _Product.apply(x, kernel, bias, with_gelu)
    return _product(x, kernel, bias, with_gelu)


def _product(x, kernel, bias, with_gelu=False):
    y = x @ kernel if bias is None else torch.addmm(bias, x, kernel)
    return F.gelu(y, approximate="tanh") if with_gelu else y


def _takes_onednn(x):
    # The formats in which PyTorch records a graph lack the operation.
    if _is_recorded() or torch.is_autocast_enabled("cpu") or type(x) is not torch.Tensor:
        return False
    is_short = x.dtype in (torch.float32, torch.bfloat16)
    return is_short and x.device.type == "cpu" and x.numel() > 0 and has_onednn(x.dtype)


def _is_recorded():
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


class _Product(torch.autograd.Function):
    """The product by oneDNN, whose operation has no derivatives of its own.

    The GELU is within it where no gradient is wanted: PyTorch's own by tanh takes four times as
    long as the one by erf, a fifth of an inference in bfloat16.
    """

    @staticmethod
    def forward(x, kernel, bias, with_gelu):
        then = ("gelu", [], "tanh") if with_gelu else ("none", [], "")
        return torch.ops.mkldnn._linear_pointwise(x, kernel.t(), bias, *then)

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


@functools.cache
def onednn_is_faster():
    """Whether the CPU is AMD's, for which MKL, which PyTorch takes for float32, has no fast code.

    The maker decides rather than a timing, because a resumed training must multiply as before.
    """
    cpu = pathlib.Path("/proc/cpuinfo")
    return "AuthenticAMD" in (cpu.read_text() if cpu.exists() else platform.processor())


@functools.cache
def has_onednn(dtype):
    """Whether this PyTorch has oneDNN's linear map for this CPU."""
    x = torch.ones(2, 2, dtype=dtype)
    try:
        _Product.forward(x, x, x[0], True)
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    return True


def gelu(x, approximate):
    """The GELU of `kernels.gelu`; compiled, a sigmoid takes a third of the time of a tanh."""
    if approximate and torch.compiler.is_compiling() and not torch.compiler.is_exporting():
        return x * torch.sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x * x * x))
    return F.gelu(x, approximate="tanh" if approximate else "none")


def layer_norm(x, gamma, beta, epsilon):
    """The LayerNorm of `kernels.layer_norm`; on a CPU PyTorch reads bfloat16 as it is."""
    wide = x if x.device.type == "cpu" else x.to(gamma.dtype)
    return F.layer_norm(wide, gamma.shape, gamma, beta, epsilon).to(x.dtype)


def attention(query, key, value):
    """The attention of `kernels.attention`; that of `keras.ops` breaks compiled graphs."""
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    return F.scaled_dot_product_attention(query, key, value).transpose(1, 2)


def as_tensor(array):
    """See `kernels.as_tensor`; Keras's conversion of NumPy breaks compiled graphs."""
    array = torch.as_tensor(array) if torch.compiler.is_compiling() else array
    return keras.ops.convert_to_tensor(array)


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
        if _is_recorded() or type(like) not in (torch.Tensor, torch.nn.Parameter):
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
    if kernel.shape[0] == 1 and _takes_onednn(x) and onednn_is_faster():
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
    """See `kernels.lay_out`."""
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
