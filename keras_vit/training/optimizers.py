"""Optimizers with the authors' settings."""

import keras

# Names of the variables that are not kernels: the authors decay kernels only.
NO_DECAY = ("bias", "gamma", "beta", "class_token", "embedding", "rows", "columns", "probe")


def adamw(learning_rate, steps, warmup_steps=0, weight_decay=0.0, clip_norm=1.0):
    """AdamW with linear warm-up and cosine decay to zero, as in Table 3 for ImageNet.

    Args:
        learning_rate: the highest, reached after the warm-up.
        steps: updates in the whole run, the warm-up included.
        warmup_steps: updates of the warm-up.
        weight_decay: share of a kernel that is subtracted at each update, times the learning
            rate; other variables do not decay.
        clip_norm: limit for the norm of all gradients together, or `None`.

    Raises:
        ValueError: the warm-up is not shorter than the run.
    """
    if not 0 <= warmup_steps < steps:
        raise ValueError(
            "The warm-up must be shorter than the run. Received: "
            f"warmup_steps={warmup_steps}, steps={steps}; lower warmup_steps or train longer."
        )
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0 if warmup_steps else learning_rate,
        decay_steps=steps - warmup_steps,
        warmup_target=learning_rate if warmup_steps else None,
        warmup_steps=warmup_steps,
    )
    optimizer = keras.optimizers.AdamW(
        schedule, weight_decay=weight_decay, epsilon=1e-8, global_clipnorm=clip_norm
    )
    optimizer.exclude_from_weight_decay(var_names=list(NO_DECAY))
    return optimizer
