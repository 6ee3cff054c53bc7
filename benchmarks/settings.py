"""What one process of a speed benchmark does, as data that fits into a command line."""

import dataclasses
import json
import re

from architecture import Architecture

OF_OURS = ("gelu", "optimizer", "memory", "weights")  # options that no peer has
BACKENDS = ("torch", "tensorflow", "jax")
OPTIONS = {  # what stands in the brackets of `keras_vit[jit=true,gelu=erf]`
    "jit": ("auto", "true", "false"),
    "gelu": ("erf", "tanh"),
    "optimizer": ("keras", "ours"),
    "memory": ("returned", "kept"),
    "remat": ("true", "false"),
    "flash": ("auto", "true", "false"),
    "dtype": ("float32", "bfloat16"),
    "weights": ("float32", "bfloat16"),
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """One implementation, one task, one batch size.

    Attributes:
        name: of the implementation, a key of `peers.PEERS`.
        backend: what it computes on.
        task: `"infer"` or `"train"`.
        jit: XLA on TensorFlow, `torch.compile` on PyTorch; JAX always compiles. `"auto"` is the
            implementation's own choice.
        gelu, optimizer: of keras_vit alone; `"ours"` is `keras_vit.training.AdamW`.
        memory: `"kept"` calls `keras_vit.training.keep_memory()` first; of keras_vit alone.
        weights: their type where `dtype` is bfloat16: the policy mixed_bfloat16 or bfloat16; of
            keras_vit alone.
        remat: whether blocks are computed again in the backward pass.
        flash: fused attention on or off, where that is a choice.
        resident: data stay on the device and steps are only waited for at the end of a turn; not
            as a user of `fit` has it, but what the device can do.
        warmup: steps after the first one and before any that is timed.
    """

    name: str
    backend: str
    architecture: Architecture
    task: str = "infer"
    batch: int = 4
    dtype: str = "float32"
    jit: str = "auto"
    gelu: str = "erf"
    optimizer: str = "keras"
    memory: str = "returned"
    remat: str = "false"
    flash: str = "auto"
    weights: str = "float32"
    resident: bool = False
    warmup: int = 2

    @property
    def label(self):
        """The name with every option that is not the default, as it is written to ask for it."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        changed = [f"{o}={getattr(self, o)}" for o in OPTIONS if getattr(self, o) != defaults[o]]
        return f"{self.name}[{','.join(changed)}]" if changed else self.name

    @property
    def operations(self):
        """Floating point operations of a step."""
        return self.batch * self.architecture.operations(self.task)

    def replace(self, **changes):
        return dataclasses.replace(self, **changes)

    def to_json(self):
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text):
        values = json.loads(text)
        return cls(**{**values, "architecture": Architecture(**values["architecture"])})


def parse_spec(text):
    """`name[option=value,...]` -> the name and a dict of options."""
    match = re.fullmatch(r"([\w-]+)(?:\[([^\]]*)\])?", text)
    if not match:
        raise ValueError(f"Expected name or name[option=value,...]. Received: {text!r}.")
    options = {}
    for part in filter(None, (match[2] or "").split(",")):
        option, _, value = part.partition("=")
        if value not in OPTIONS.get(option, ()):
            choices = "; ".join(f"{name}={'|'.join(values)}" for name, values in OPTIONS.items())
            raise ValueError(f"Unknown option in {text!r}: {part!r}. Expected {choices}.")
        options[option] = value
    return match[1], options
