"""A network with several heads: one for each column of labels, all of the same features."""

import inspect
import re
import warnings

import keras

from keras_vit.checks import positive_int
from keras_vit.heads import errors_of, heads_of, of_head
from keras_vit.layers.changed_layers import apply_changes
from keras_vit.layers.head import linear_head
from keras_vit.layers.layer import Layer
from keras_vit.models.compiled_loss import record_loss
from keras_vit.models.record import recorded
from keras_vit.models.trainer import Trainer

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")  # what all backends take as the name of a layer


@keras.saving.register_keras_serializable("keras_vit")
class MultitaskModel(Trainer, keras.Model):
    """A network of this library and linear heads of its features; made by `add_heads`.

    Its outputs are a dict {head: logits or values}. `class_names` and `reading`, which the losses
    in `compile` set, are dicts by head. They are saved with the model, and so is `preprocessing`.
    """

    preprocessing, weights_from = recorded("preprocessing"), recorded("weights_from")
    class_names, reading, label_set = recorded("class_names"), recorded("reading"), None
    variant, image_size, channels = map(recorded, ("variant", "image_size", "channels"))
    num_classes = property(lambda self: {head: x.shape[-1] for head, x in self.output.items()})

    @property
    def model_record(self):
        """The `ModelRecord` of the network, which is saved with its first layer."""
        return next(x.model_record for x in self.layers if isinstance(x, Layer) and x.model_record)

    def compile(self, *args, **kwargs):
        super().compile(*args, **kwargs)
        names = inspect.signature(super().compile).bind(*args, **kwargs).arguments
        metrics = [names.get("metrics"), names.get("weighted_metrics")]
        # Keras takes the parts of a list in the order of `output_names`.
        by_head = [
            dict(zip(self.output_names, each)) if isinstance(each, list | tuple) else each
            for each in metrics
        ]
        heads = heads_of(self)
        for name, head in heads.items():
            with errors_of(name, note=False):
                record_loss(head, [of_head(each, name) for each in by_head])
        self.reading = {name: head.reading for name, head in heads.items() if head.reading}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        # Of earlier files; each layer has its own changes now.
        changes = {name: config[name] for name in ("changed_layers", "frozen") if name in config}
        graph = {name: value for name, value in config.items() if name not in changes}
        model = super().from_config(graph, custom_objects)
        apply_changes(model, **changes)
        return model

    def compile_from_config(self, config):
        try:
            super().compile_from_config(config)
        except ValueError as error:
            if not self.compiled:
                raise
            warnings.warn(str(error), stacklevel=2)  # an older file may have what is refused now
            if self.optimizer is not None:
                self.optimizer.build(self.trainable_variables)


def add_heads(network: keras.Model, outputs: dict[str, int], bias: float = 0.0) -> MultitaskModel:
    """A model of a network and of several linear heads, each zero when fresh.

        vit = keras_vit.ViT_B16(num_classes=0)
        model = add_heads(vit, {"breed": 37, "age": 1})
        model.compile("adam", {"breed": keras_vit.training.SoftmaxLoss(), "age": "mse"})

    Args:
        network: a model of this library without a head, whose output is (batch, width).
        outputs: name of each head, and of its layer -> its number of outputs.
        bias: the initial bias of each head.

    Raises:
        ValueError: a model of tokens or with a head, fewer than two heads, or a name that a layer
            cannot have or that the network has already.
    """
    shape = tuple(getattr(getattr(network, "output", None), "shape", ()))  # () without a graph
    if len(shape) != 2 or getattr(network, "num_classes", 0):
        raise ValueError(
            "Heads are added to features of shape (batch, width): build the network with "
            f"num_classes=0, and with a pool. Received: {network.name!r}, whose output has the "
            f"shape {shape or 'unknown'}, num_classes={getattr(network, 'num_classes', None)}."
        )
    if len(outputs) < 2:
        raise ValueError(
            "Several heads are two or more; of one output, build the network with num_classes. "
            f"Received: {outputs!r}."
        )
    taken = {layer.name for layer in network.layers}
    for name in outputs:
        if not _NAME.fullmatch(name) or name in taken:
            why = "which is a layer of the network" if name in taken else "which no layer can have"
            raise ValueError(
                "A head has a name of letters, digits, '_', '-' and '.' that no layer of the "
                f"network has. Received: {name!r}, {why}; rename the column or the key."
            )
    policy, heads = network.dtype_policy, {}
    for name, units in outputs.items():
        options = {"bias": bias, "dtype": policy, "name": name}
        heads[name] = linear_head(network.output, positive_int(units, name), **options)
    model = MultitaskModel(network.input, heads, name=network.name)
    model.load_report = getattr(network, "load_report", None)
    return model
