"""Fast paths on PyTorch: one operation for all variables instead of many for each.

Each equals `DecoupledOptimizer.update_step` with the `direction` that it stands beside.
"""

import keras


def adamw(optimizer, gradients, variables, learning_rate):
    """One update of `AdamW`, in one pass over the memory.

    Args:
        optimizer: an `AdamW`.
        gradients: list of tensors.
        variables: list of `keras.Variable`, all float32 or all float64.
        learning_rate: number or tensor.

    Returns:
        Whether it was made: this PyTorch may not have the operation.
    """
    import torch

    if not hasattr(torch, "_fused_adamw_"):
        return False
    step = (optimizer.updates + 1).to(torch.float32)
    with torch.no_grad():
        for values, given, slots, rate, decay in _groups(
            optimizer, gradients, variables, learning_rate
        ):
            torch._fused_adamw_(
                values,
                given,
                *slots,
                [],
                [step] * len(values),
                lr=rate,
                beta1=optimizer.beta_1,
                beta2=optimizer.beta_2,
                weight_decay=decay,
                eps=optimizer.epsilon,
                amsgrad=False,
                maximize=False,
            )
    return True


def sgdm(optimizer, gradients, variables, learning_rate):
    """One update of `SGDM`; see `adamw`."""
    import torch

    with torch.no_grad():
        for values, given, (momenta,), rate, decay in _groups(
            optimizer, gradients, variables, learning_rate
        ):
            torch._foreach_mul_(momenta, optimizer.momentum)
            torch._foreach_add_(momenta, given)
            updates = torch._foreach_add(momenta, values, alpha=decay)
            torch._foreach_mul_(updates, rate)
            torch._foreach_sub_(values, updates)
    return True


def _groups(optimizer, gradients, variables, learning_rate):
    """Yields values, gradients, slots, learning rate and decay of what is updated alike."""
    dtype = keras.backend.standardize_dtype(variables[0].dtype)
    # A tensor: reading its value would wait for the device.
    rate = keras.ops.cast(learning_rate, dtype)
    places = [optimizer._get_variable_index(v) for v in variables]
    groups = {}
    for row, i in enumerate(places):
        groups.setdefault((optimizer.layer_rates[i], optimizer.decays(i)), []).append(row)
    for (factor, decays), rows in groups.items():
        values = [variables[row].value.data for row in rows]
        slots = [[slot[places[row]].value.data for row in rows] for slot in optimizer._slots]
        given = [gradients[row].to(value.dtype) for row, value in zip(rows, values)]
        yield values, given, slots, rate * factor, optimizer.weight_decay if decays else 0.0


def global_norm(gradients):
    """The norm of all gradients together, or None if this is not PyTorch with one exact dtype."""
    dtypes = {keras.backend.standardize_dtype(g.dtype) for g in gradients if g is not None}
    if keras.backend.backend() != "torch" or dtypes not in ({"float32"}, {"float64"}):
        return None
    import torch

    norms = torch._foreach_norm([g for g in gradients if g is not None])
    return torch.linalg.vector_norm(torch.stack(norms))
