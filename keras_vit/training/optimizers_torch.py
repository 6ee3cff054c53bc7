"""A fast path on PyTorch: one kernel for all variables instead of many for each."""

import keras


def update_all(optimizer, gradients, variables, learning_rate):
    """Makes one update of all variables, if this is PyTorch and they have one exact dtype.

    Computes what `DecoupledOptimizer.update_step` does for each by itself.

    Args:
        optimizer: a `DecoupledOptimizer` with `directions_torch`.
        gradients: list of tensors.
        variables: list of `keras.Variable`.
        learning_rate: number or tensor.

    Returns:
        Whether it did.
    """
    dtypes = {keras.backend.standardize_dtype(v.dtype) for v in variables}
    if keras.backend.backend() != "torch" or dtypes not in ({"float32"}, {"float64"}):
        return False
    if not hasattr(optimizer, "directions_torch"):
        return False
    import torch

    with torch.no_grad():
        values = [v.value.data for v in variables]
        places = [optimizer._get_variable_index(v) for v in variables]
        slots = [[slot[i].value.data for i in places] for slot in optimizer._slots]
        gradients = [g.to(value.dtype) for g, value in zip(gradients, values)]
        step = (optimizer.updates + 1).to(values[0].dtype)
        updates = optimizer.directions_torch(gradients, slots, step)
        decaying = [k for k, i in enumerate(places) if optimizer.decays(i)]
        if decaying:
            torch._foreach_add_(
                [updates[k] for k in decaying],
                [values[k] for k in decaying],
                alpha=optimizer.weight_decay,
            )
        if optimizer.layer_decay is not None:
            torch._foreach_mul_(updates, [optimizer.layer_rates[i] for i in places])
        # A tensor as the factor: reading its value would wait for the device.
        torch._foreach_mul_(updates, keras.ops.cast(learning_rate, values[0].dtype))
        torch._foreach_sub_(values, updates)
    return True


def global_norm(gradients):
    """The norm of all gradients together, of their dtype, or None as `update_all` says False."""
    dtypes = {keras.backend.standardize_dtype(g.dtype) for g in gradients if g is not None}
    if keras.backend.backend() != "torch" or dtypes not in ({"float32"}, {"float64"}):
        return None
    import torch

    norms = torch._foreach_norm([g for g in gradients if g is not None])
    return torch.linalg.vector_norm(torch.stack(norms))


def adam(gradients, momenta, velocities, step, rule):
    """The directions of `AdamW`, and its state in place."""
    import torch

    torch._foreach_mul_(momenta, rule.beta_1)
    torch._foreach_add_(momenta, gradients, alpha=1 - rule.beta_1)
    torch._foreach_mul_(velocities, rule.beta_2)
    torch._foreach_addcmul_(velocities, gradients, gradients, value=1 - rule.beta_2)
    below = torch._foreach_div(velocities, rule.correction(rule.beta_2, torch.expm1, step))
    torch._foreach_sqrt_(below)
    torch._foreach_add_(below, rule.epsilon)
    updates = torch._foreach_div(momenta, rule.correction(rule.beta_1, torch.expm1, step))
    torch._foreach_div_(updates, below)
    return updates


def sgdm(gradients, momenta, rule):
    """The directions of `SGDM`, and its state in place; new tensors, as decay is added to them."""
    import torch

    torch._foreach_mul_(momenta, rule.momentum)
    torch._foreach_add_(momenta, gradients)
    return [m.clone() for m in momenta]
