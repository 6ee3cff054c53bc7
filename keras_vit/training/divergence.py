"""A loss that is no longer finite: what is kept, and what is said."""

import json
import math
import pathlib

import keras
import numpy as np

from keras_vit.training import state


class DivergenceError(ValueError):
    """The loss, the gradients or the weights are no longer finite.

    Attributes:
        step: updates done, the one that failed included.
        path: the file that describes the batch.
    """

    def __init__(self, message, step, path):
        super().__init__(message)
        self.step, self.path = step, path


class StopOnDivergence(keras.callbacks.Callback):
    """Ends a run at the first update whose loss is NaN or infinite.

    Args:
        progress: the run's `Progress`.
        pipeline: where the batch came from.
        output: folder for `nan_batch.json`, and `nan_batch.npz` where the pipeline cannot name
            the images.
    """

    def __init__(self, progress, pipeline, output):
        super().__init__()
        self.progress, self.pipeline, self.output = progress, pipeline, pathlib.Path(output)

    def on_train_batch_end(self, batch, logs=None):
        for name, value in (logs or {}).items():
            if name.endswith("loss") and not math.isfinite(value):
                self.stop(f"{name} is {value}")

    def check_gradients(self, norm):
        """Stops at a norm that is not finite, unless a loss scale is being sought.

        Raises:
            DivergenceError: it is not finite.
        """
        if not math.isfinite(norm) and not hasattr(self.model.optimizer, "inner_optimizer"):
            self.stop(f"the norm of the gradients is {norm}")

    def stop(self, what):
        """Saves which batch it was and raises.

        Raises:
            DivergenceError: always.
        """
        progress = self.progress
        state.sync(self.model)
        rate, norm = state.learning_rate(self.model), state.gradient_norm(self.model)
        facts = {"step": progress.step, "epoch": progress.epoch, "what": what}
        facts |= {"learning_rate": rate, "gradient_norm": norm}
        where, path = self._save_batch(progress.step - 1, facts)
        raise DivergenceError(
            f"At update {progress.step} (epoch {progress.epoch + 1}), with learning rate "
            f"{rate:.3g}, {what}, so training stopped. {where} The last good weights "
            f"are in {self.output / 'checkpoints'}. Lower the learning rate, lengthen its warm-up, "
            "clip the gradients, or compute in float32, in another output folder.",
            progress.step,
            path,
        )

    def _save_batch(self, step, facts):
        path = self.output / "nan_batch.json"
        if hasattr(self.pipeline, "indices"):
            facts["indices"] = np.asarray(self.pipeline.indices(step)).tolist()
            where = f"The numbers of the batch's images are in {path}."
        else:
            arrays = self.output / "nan_batch.npz"
            batch = keras.tree.flatten(next(iter(self.pipeline.from_step(step))))
            np.savez(arrays, *[keras.ops.convert_to_numpy(part) for part in batch])
            where = f"The batch is in {arrays}."
        path.write_text(json.dumps({k: _plain(v) for k, v in facts.items()}, indent=1))
        return where, path


def _plain(value):
    """NaN and infinity as text: JSON has no such numbers."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
