"""BiT checkpoints: whose they are, and what is written.

`FORMATS` are modules, each with FAMILY, `recognises(arrays)` and `read(contents, hints)`. No two
recognise the same file.
"""

from keras_vit.weights import bit_big_transfer, bit_big_vision, bit_huggingface, bit_timm

FORMATS = (bit_huggingface, bit_timm, bit_big_transfer, bit_big_vision)

write = bit_big_transfer.write
write_timm = bit_timm.write
timm_config = bit_timm.config
