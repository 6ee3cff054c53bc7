"""Bytes that a chip sends in one update, computed from shapes.

A sum over n chips that leaves the result on all of them costs each 2 (n - 1) / n times its bytes,
and no algorithm costs less (Patarasu and Yuan, 2009); gathering, and summing into parts, cost half
of that each. A link carries as much in the other direction.
"""

FLOAT = 4


def all_reduce(nbytes, chips):
    """Bytes that each chip sends to sum `nbytes` over all of them."""
    return 2 * (chips - 1) / chips * nbytes


def all_gather(nbytes, chips):
    """Bytes that each chip sends to make whole on all what was cut, `nbytes` in all."""
    return (chips - 1) / chips * nbytes


reduce_scatter = all_gather  # of the whole sum


def gradients(shapes, placing):
    """Bytes sent to sum the gradients, and to gather variables where they are cut."""
    if placing.mode != "fully_sharded":
        mine = shapes.bytes("bytes", placing.mode, placing.cut)
        return all_reduce(mine, placing.groups)
    sent = 0
    for v in shapes.variables:
        if v.shares(placing.mode, placing.cut) == 1:
            sent += all_reduce(v.bytes, placing.devices)
        else:  # gathered forwards and backwards
            arriving = v.values * placing.width if v.is_cast else v.bytes
            sent += 2 * all_gather(arriving, placing.devices)
            sent += reduce_scatter(v.bytes, placing.devices)
    return sent


def activations(shapes, placing, images):
    """Bytes sent for the activations of one group's `images` in the model-parallel layout.

    A block sums its tokens twice in each direction (Shoeybi et al., 2019, section 3), and once
    more where it is computed again; the embedding is gathered, the logits are summed. Going back,
    XLA sums the gradients that come from query, key and value one by one, which is twice more.
    """
    chips = placing.model_devices
    if chips == 1:
        return 0
    v = shapes.variant
    tokens = images * shapes.tokens * v.width * placing.width
    sums = 7 if placing.remat else 6
    ends = all_gather(tokens, chips) + all_reduce(images * shapes.num_classes * FLOAT, chips)
    return v.depth * sums * all_reduce(tokens, chips) + ends


def data_parallel_minimum(shapes, devices):
    """The least that summing all gradients over the chips costs each."""
    return all_reduce(shapes.bytes("bytes"), devices)
