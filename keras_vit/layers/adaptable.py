"""A dense layer whose kernel can be adapted (LoRA) and quantised, also in a subclass."""

import keras
import numpy as np

from keras_vit.layers import kernels
from keras_vit.layers.changed_layers import Changeable
from keras_vit.layers.layer import FloatInputs
from keras_vit.workarounds import policy_at

_GIVEN_POLICY = keras.layers.EinsumDense.dtype_policy.fget


@keras.saving.register_keras_serializable("keras_vit")
class AdaptableDense(Changeable, FloatInputs, keras.layers.EinsumDense):
    """`EinsumDense` of floats and integers; `Linear`, which computes, takes LoRA and quantisation.

    Keras 3.15 lacks parts of both, for its own class too; a comment says which.
    """

    @keras.layers.EinsumDense.dtype_policy.getter
    def dtype_policy(self):
        # `super().dtype_policy` breaks PyTorch's compiler.
        return policy_at(_GIVEN_POLICY(self), self.path)

    def add_weight(self, shape=None, initializer=None, *args, **kwargs):
        # `EinsumDense.build` calls this for the kernel and the bias. Under mixed precision Keras
        # would cast the kernel at every use, which `kernels.linear` does already.
        if kwargs.get("name") == "kernel":
            kwargs.setdefault("autocast", False)
        initializer = kernels.initial(initializer)  # the same values, compiled faster
        return super().add_weight(shape, initializer, *args, **kwargs)

    def quantize(self, mode=None, type_check=True, config=None):
        # Keras skips subclasses, as they might compute something else: these do not.
        super().quantize(mode, type_check=False, config=config)

    @property
    def exact_kernel(self):
        """The kernel as a variable, or a ValueError where it is quantised, without its scale."""
        if self.quantization_mode in ("int8", "int4"):
            raise ValueError(
                f"The kernel of {self.path!r} is quantised to {self.quantization_mode}, but its "
                "exact values are needed here. Take the model as it was before `quantize`."
            )
        return self.kernel

    def save_own_variables(self, store):
        # With LoRA, Keras saves the sum alone and loads both factors as zero, where their
        # gradients are zero too.
        if not self.lora_enabled:
            return super().save_own_variables(store)
        for variable in self.weights:
            store[variable.name] = variable
        store["lora_scale"] = np.float32(self.lora_alpha / self.lora_rank)

    def load_own_variables(self, store):
        names, is_adapted = set(store.keys()), self.lora_enabled
        takes_sum = "lora_scale" in names and "kernel_scale" not in names  # of exact kernels
        if "lora_kernel_a" not in names or not (is_adapted or takes_sum):
            before = np.array(self.lora_kernel_a) if is_adapted else None
            super().load_own_variables(store)
            if is_adapted:  # Keras makes both factors zero: neither would have a gradient
                self.lora_kernel_a.assign(before)
            return
        for variable in self.weights:
            variable.assign(store[variable.name])
        # A layer that opens without LoRA, as in a model of Keras's own class, takes the sum.
        if not is_adapted:
            factors = (np.array(store[f"lora_kernel_{factor}"]) for factor in "ab")
            self.kernel.assign_add(np.matmul(*factors) * np.array(store["lora_scale"]))
