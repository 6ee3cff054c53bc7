"""A format as one table between names in a file and canonical names, for both directions.

In a name of a table, `{i}` stands for a number, `{i+1}` for one more than `{i}` (PyTorch counts
from 0), `{i:02}` for one with two digits, and `[a|b]` for either text, of which the first is
written. In a canonical name `[a|b]` means several arrays, which the file keeps as one, joined along
their last axis.
"""

import functools
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from keras_vit.text import shortened
from keras_vit.weights.safety import CheckpointError

PARTS = ("query", "key", "value", "out")


# ---- how arrays lie in a file


class Layout(NamedTuple):
    """How an array lies in a file: its number of axes there (or `None`), and both conversions."""

    axes: int | None = None
    read: Callable = lambda array: array
    write: Callable = lambda array: array


def _vector(array):
    if array.size != array.shape[-1]:
        raise ValueError("there must be one number per channel")
    return array.reshape(-1)


def matrix_of(kernel):
    """The matrix of a 1 x 1 convolution of shape (1, 1, in, out)."""
    if kernel.ndim != 4 or kernel.shape[:2] != (1, 1):
        raise ValueError("it must be a 1 x 1 convolution")
    return kernel[0, 0]


SAME = Layout()
VECTOR = Layout(None, _vector)  # (1, 1, 1, C), as Flax stored group norms once
TRANSPOSED = Layout(2, lambda m: m.T, lambda m: m.T)  # (out, in), as PyTorch has it
# (out, in, height, width), as PyTorch has it.
CONV = Layout(4, lambda k: k.transpose(2, 3, 1, 0), lambda k: k.transpose(3, 2, 0, 1))
FLAX_PATCHES = Layout(4)  # (height, width, in, out)
ROWS = Layout(2, lambda t: t[None], lambda t: t[0])  # a vector for each token, without a batch


# ---- rows of layers


def rows_of(ends, arrays, layout=SAME):
    """A function that makes the rows of a layer from its name in the file and its path.

    Names in the file have the `ends`, and paths those of `arrays`; a bias lies everywhere as here.
    """
    pairs = list(zip(ends.split(), arrays.split()))

    def rows(name, path, layout=layout):
        return [
            (name + end, f"{path}/{array}", SAME if array == "bias" else layout)
            for end, array in pairs
        ]

    return rows


flax_dense = rows_of("/kernel /bias", "kernel bias")
flax_norm = rows_of("/scale /bias", "gamma beta")
torch_linear = rows_of(".weight .bias", "kernel bias", TRANSPOSED)
torch_norm = rows_of(".weight .bias", "gamma beta")
torch_in_proj = rows_of("_weight _bias", "kernel bias", TRANSPOSED)  # of PyTorch's own attention
keras_dense = rows_of("/vars/0 /vars/1", "kernel bias")
keras_norm = rows_of("/vars/0 /vars/1", "gamma beta")


def flax_attention(name, path):
    return [row for p in PARTS for row in flax_dense(f"{name}/{p}", f"{path}/{p}")]


def torch_attention(prefix, names="q_proj k_proj v_proj out_proj", path="block_{i}/attention/"):
    """Rows of the linear maps of an attention, called `names` in the order of `PARTS`."""
    pairs = zip(names.split(), PARTS)
    return [row for name, part in pairs for row in torch_linear(prefix + name, path + part)]


def torch_mlp(prefix, names, path="block_{i}/mlp/"):
    """Rows of the linear maps of an MLP, called `names`; the first of three is that of the gate."""
    pairs = zip(names.split()[::-1], ("dense_2", "dense_1", "gate"))
    return [row for name, part in pairs for row in torch_linear(prefix + name, path + part)]


def torch_resnet(root_conv, root_norm, unit):
    """Rows of a ResNet under the names that timm and Hugging Face share, without its head."""
    path = "stage_{s+1}_unit_{u+1}/"
    return [
        (f"{root_conv}.weight", "root/conv/kernel", CONV),
        *torch_norm(root_norm, "root/norm"),
        (unit + ".conv{n}.weight", path + "conv{n}/kernel", CONV),
        *torch_norm(unit + ".norm{n}", path + "norm{n}"),
        (unit + ".downsample.conv.weight", path + "conv_proj/kernel", CONV),
        *torch_norm(unit + ".downsample.norm", path + "norm_proj"),
    ]


# ---- tables


class Row(NamedTuple):
    """A row of a table: an array in the file, and where it belongs."""

    in_file: "NamePattern"
    canonical: "NamePattern"
    layout: Layout


class Table:
    """Rows of (name in the file, canonical name, `Layout`). The first that fits counts."""

    def __init__(self, *rows):
        self.rows = rows

    @functools.cached_property
    def _patterns(self):  # of a file's format alone, as they take long to compile
        return [Row(NamePattern(a), NamePattern(b), layout) for a, b, layout in self.rows]

    def _row_of(self, name, side):
        """The first row whose name on a side, a field of `Row`, fits, and the numbers in it."""
        for row in self._patterns:
            numbers = getattr(row, side).numbers_in(name)
            if numbers is not None:
                return row, numbers
        return None, {}

    def targets(self, name):
        """The canonical names of an array in a file, in a list; none for an unknown name."""
        row, numbers = self._row_of(name, "in_file")
        return row.canonical.with_numbers(numbers) if row else []

    def name_of(self, path):
        """What the format calls an array, or its canonical name where it has none."""
        row, numbers = self._row_of(path, "canonical")
        return row.in_file.with_numbers(numbers)[0] if row else path

    def read(self, arrays, family, ignored=()):
        """Arrays and names in the file by canonical name, and names that fit `ignored` patterns."""
        canonical, names_in_file, left_out, unknown = {}, {}, [], []
        for name, array in arrays.items():
            row, numbers = self._row_of(name, "in_file")
            if row is None:
                is_ignored = any(re.fullmatch(pattern, name) for pattern in ignored)
                (left_out if is_ignored else unknown).append(name)
                continue
            targets = row.canonical.with_numbers(numbers)
            for target, part in zip(targets, _parts(row.layout, name, array, len(targets))):
                if target in canonical:
                    text = f"Two arrays for {target!r}: {names_in_file[target]!r}, {name!r}."
                    raise CheckpointError(text)
                canonical[target], names_in_file[target] = part, name
        if unknown:
            raise CheckpointError(
                f"These arrays have no place in a model of {family}: "
                f"{shortened(sorted(unknown), 4)}."
            )
        return canonical, names_in_file, tuple(left_out)

    def write(self, arrays):
        """The arrays of a file from canonical ones."""
        file = {}
        for path in arrays:
            row, numbers = self._row_of(path, "canonical")
            if row is None:
                raise CheckpointError(f"The format has no name for {path!r}.")
            parts = row.canonical.with_numbers(numbers)
            if path == parts[0]:  # the others are joined to it
                joined = [arrays[part] for part in parts]
                whole = np.concatenate(joined, axis=-1) if parts[1:] else joined[0]
                name = row.in_file.with_numbers(numbers)[0]
                file[name] = np.ascontiguousarray(row.layout.write(whole))
        return file


class NamePattern:
    """A name of a table: text with places for numbers, `{i}`, and with alternatives, `[a|b]`."""

    def __init__(self, text):
        pattern, self.forms, self.added = "", [""], {}
        for piece in re.split(r"(\{.*?\}|\[.*?\])", text):
            if piece.startswith("{"):
                letter, plus, digits = re.fullmatch(r"\{(\w)(\+1)?(:\d+)?\}", piece).groups("")
                self.added[letter] = int(plus or 0)
                pattern += rf"0*(?P<{letter}>\d{{1,6}})"
                choices = [f"{{{letter}{digits}}}"]
            else:  # alternatives, or plain text, which has none
                choices = piece.strip("[]").split("|")
                pattern += f"(?:{'|'.join(map(re.escape, choices))})"
            self.forms = [form + choice for choice in choices for form in self.forms]
        self.pattern = re.compile(pattern)

    def numbers_in(self, name):
        """The numbers in a name of this form, or `None` for another name."""
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        numbers = {letter: int(n) - self.added[letter] for letter, n in match.groupdict().items()}
        return numbers if min(numbers.values(), default=0) >= 0 else None

    def with_numbers(self, numbers):
        """The names with these numbers in them, one for each alternative."""
        shifted = {letter: n + self.added.get(letter, 0) for letter, n in numbers.items()}
        return [form.format(**shifted) for form in self.forms]


def _parts(layout, name, array, count):
    """The array in canonical form, in as many parts as share it."""
    try:
        if not array.size:
            raise ValueError("it has no values")
        if layout.axes not in (None, array.ndim):
            raise ValueError(f"it must have {layout.axes} axes")
        array = layout.read(array)
        return [array] if count == 1 else np.split(array, count, axis=-1)
    except (ValueError, IndexError, TypeError) as error:
        raise CheckpointError(
            f"{name!r} has the shape {array.shape}, which no such array has ({error}); the file "
            "is damaged or of another format."
        ) from error


def key_of(meanings, value):
    """The first key of a dict that has a value, or its first key where none has it."""
    return next((key for key, path in meanings.items() if path == value), next(iter(meanings)))


# ---- heads

# The bias of `out` has no axis of heads.
_ATTENTION = re.compile(r"(block_\d+|pool)/attention/(query|key|value|out(?!/bias))/(kernel|bias)")


def split_heads(arrays, num_heads, pool_heads=None):
    """Gives matrices of attention their axis of heads; pooling has `pool_heads`, or as many."""
    for name, array in arrays.items():
        if match := _ATTENTION.fullmatch(name):
            heads = (pool_heads or num_heads) if match[1] == "pool" else num_heads
            is_out = match[2] == "out"
            units = array.shape[0 if is_out else -1]
            if units % heads:
                raise CheckpointError(
                    f"{heads} heads do not divide the {units} units of {name!r}. "
                    "Say num_heads=... as the model was built."
                )
            before, behind = ((), array.shape[1:]) if is_out else (array.shape[:-1], ())
            arrays[name] = array.reshape(*before, heads, units // heads, *behind)


def join_heads(arrays):
    """The arrays with the matrices of the attention without their axis of heads."""
    joined = dict(arrays)
    for name, array in arrays.items():
        if match := _ATTENTION.fullmatch(name):
            shape = (-1, array.shape[-1]) if match[2] == "out" else (*array.shape[:-2], -1)
            joined[name] = array.reshape(shape)
    return joined
