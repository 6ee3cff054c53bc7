"""What PyTorch compiles of a model that is compiled with `jit_compile=True`: its blocks.

Keras hands PyTorch's compiler a whole step, which takes minutes for S/16: the compiler reads each
call of each layer, the update of each variable, and all of it twice, as it stops at the gradients.
Blocks differ in nothing but their weights. So one program serves all blocks of a model; to compile
it takes seconds at any depth, and it runs as fast (docs/performance.md).
"""

import contextlib
import functools
import inspect

from keras_vit.layers import TransformerBlock, kernels
from keras_vit.layers.layer import has_hooks

MOST_PROGRAMS = 64  # in a process: for each model, in training or not


@contextlib.contextmanager
def compiled_by_block(model):
    """Within it Keras makes a function of a model; the yielded function gives it compiled blocks.

    Nothing changes but on PyTorch, for models of blocks with `jit_compile=True`.
    """
    blocks = [each for each in model._flatten_layers() if isinstance(each, TransformerBlock)]
    if kernels.BACKEND != "torch" or not blocks or not model.jit_compile:
        yield lambda function: function
        return
    model.jit_compile = False
    try:
        yield functools.partial(_with_programs, blocks)
    finally:
        model.jit_compile = True


def _with_programs(blocks, function):
    """A function that runs blocks by one program, which PyTorch compiles in its first call."""
    import torch

    is_recent = "recompile_limit" in inspect.signature(torch.compile).parameters  # 2.12 or later
    compiled = torch.compile(_call, **({"recompile_limit": MOST_PROGRAMS} if is_recent else {}))

    def program(block, x, *args, **kwargs):
        # Of any number of images, so that the last batch of an epoch is not compiled once more. On
        # a GPU a program of one number is faster; where a second comes PyTorch makes another.
        if x.device.type == "cpu":
            torch._dynamo.maybe_mark_dynamic(x, 0)
        return compiled(block, x, *args, **kwargs)

    @functools.wraps(function)
    def run(*arguments):
        # A program does not look for hooks, which users may have added to a block meanwhile.
        plain = [x for x in blocks if not any(map(has_hooks, x._flatten_layers()))]
        try:
            for block in plain:
                block.call = functools.partial(program, block)
            return function(*arguments)
        finally:
            for block in plain:
                del block.call

    return run


def _call(block, *args, **kwargs):
    return type(block).call(block, *args, **kwargs)
