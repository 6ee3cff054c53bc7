"""One device, many devices or many hosts: `setup` chooses, and training stays `model.fit`."""

from keras_vit.distribution.devices import Devices, current, setup, to_numpy
from keras_vit.distribution.layout import LAYOUT_RULES

__all__ = ["LAYOUT_RULES", "Devices", "current", "setup", "to_numpy"]
