"""The linear map that every part of the Transformer is made of."""

import keras

from keras_vit.layers import kernels
from keras_vit.layers.layer import FloatInputs
from keras_vit.workarounds import policy_at

# By this name, because PyTorch's compiler cannot read a property of `super()`.
_policy_as_given = keras.layers.EinsumDense.dtype_policy.fget


@keras.saving.register_keras_serializable("keras_vit")
class Linear(FloatInputs, keras.layers.EinsumDense):
    """`keras.layers.EinsumDense`, computed as one product of two matrices.

    The kernel keeps the axes of the equation (heads, for one), as checkpoints and sharding rules
    need them; the product folds batch and tokens into rows and the kernel into a matrix, because
    the gradient of a product with more axes is slow on some backends. The last axes of the input
    must be the contracted ones, as in `"btd,dhk->bthk"`, and an `activation` must act on single
    values. LoRA, quantisation and every other ability of `EinsumDense` work as there.
    """

    def add_weight(self, shape=None, initializer=None, *args, **kwargs):
        if kwargs.get("name") == "kernel":
            kwargs.setdefault("autocast", False)  # `kernels.linear` casts it
        return super().add_weight(shape, kernels.initial(initializer), *args, **kwargs)

    def call(self, inputs, training=None):
        # Next to its product an activation may be computed with it.
        return kernels.linear(inputs, self.kernel, self.bias, self.activation, self._contracted)

    @keras.layers.EinsumDense.dtype_policy.getter
    def dtype_policy(self):
        return policy_at(_policy_as_given(self), self.path)

    def quantize(self, mode=None, type_check=True, config=None):
        # Keras skips subclasses, as they might compute something else: this one does not.
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
        # With LoRA, EinsumDense saves the sum alone and loads both factors as zero, where their
        # gradients are zero too.
        if self.lora_enabled:
            for variable in self.weights:
                store[variable.name] = variable
        else:
            super().save_own_variables(store)

    def load_own_variables(self, store):
        if self.lora_enabled and "lora_kernel_a" in store.keys():
            for variable in self.weights:
                variable.assign(store[variable.name])
        else:
            super().load_own_variables(store)

    def compute_output_shape(self, input_shape):
        # EinsumDense forgets the number of tokens where its output_shape leaves it open.
        features = len(self.equation.split("->")[0].split(",")[1]) - self._contracted
        return (*input_shape[: -self._contracted], *self.partial_output_shape[-features:])

    @property
    def _contracted(self):
        """The number of axes of the input that the product sums over."""
        inputs, kernel = self.equation.split("->")[0].split(",")
        return sum(axis in inputs for axis in kernel)
