"""Values of variables, wherever their parts lie."""

import functools

import keras


def to_numpy(value):
    """A variable or tensor as an array.

    Where several processes of JAX have a part each, all of them must call this: the whole of the
    variable is then brought to each process.
    """
    if isinstance(value, keras.Variable):
        value = value.value
    if getattr(value, "is_fully_addressable", True) or value.is_fully_replicated:
        return keras.ops.convert_to_numpy(value)
    whole = _gathering(value.sharding.mesh)(value)
    return keras.ops.convert_to_numpy(whole.addressable_data(0))


@functools.cache
def _gathering(mesh):
    import jax

    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    return jax.jit(lambda value: value, out_shardings=everywhere)
