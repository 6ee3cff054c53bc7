"""Many devices with PyTorch: `torch.distributed`, one process for each device, by `torchrun`."""

import os

import keras
import numpy as np

from keras_vit.distribution import evaluating, joining
from keras_vit.distribution.devices import Devices
from keras_vit.distribution.gathering import add_up

_SEED_STRIDE = 1_000_003  # between the seeds of two processes; Keras adds the calls to them


class TorchDevices(Devices):
    """One of the processes that train a model together, each on its part of every batch."""

    mode = "data_parallel"

    def __init__(self):
        import torch.distributed as dist

        self.process, self.processes = dist.get_rank(), dist.get_world_size()
        self.replicas = self.processes
        self._callback = TrainTogether(self.process, self.processes)
        self.seed_alike()

    def prepare(self, model):
        import torch.distributed as dist

        # All processes start with the weights of the first.
        for variable in model.variables:
            dist.broadcast(variable.value.data, 0)

    def callbacks(self):
        return [self._callback]

    def evaluate(self, model, data, **options):
        return evaluating.with_torch(self, model, data, **options)

    def stack(self, array):
        import torch

        device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
        local = torch.tensor(array, device=device)
        of_all = [torch.empty_like(local) for _ in range(self.processes)]
        torch.distributed.all_gather(of_all, local)
        return np.stack([each.cpu().numpy() for each in of_all])

    def close(self):
        import torch.distributed as dist

        self._callback.stop()
        if dist.is_initialized():
            dist.destroy_process_group()
        super().close()


class TrainTogether(keras.callbacks.Callback):
    """Lets `model.fit` in each process train on the batch of all.

    The gradient of each variable is averaged over the processes as soon as it is there, while
    others are still computed, so that clipping, accumulation and moving averages see the whole
    batch. (`DistributedDataParallel` does this for modules that are called as such, which Keras's
    trainer does not do.) Metrics count the images of all processes; each drops other units.
    """

    def __init__(self, process, processes):
        super().__init__()
        self._process, self._processes = process, processes
        self._hooks, self._sums = [], {}

    def on_train_begin(self, logs=None):
        self.stop()
        self._weights = [variable.value for variable in self.model.trainable_variables]
        self._hooks = [w.register_post_accumulate_grad_hook(self._average) for w in self._weights]
        self._seeds = [v for v in self.model.variables if v.path.endswith("/seed_generator_state")]

    def _average(self, weight):
        import torch.distributed as dist

        weight.grad /= self._processes
        self._sums[id(weight)] = dist.all_reduce(weight.grad, async_op=True)
        if len(self._sums) == len(self._weights):
            for sum_ in self._sums.values():
                sum_.wait()
            self._sums.clear()

    def on_train_batch_begin(self, batch, logs=None):
        self._before = [v.value.data.clone() for v in self.model.metrics_variables]
        self._shift_seeds(_SEED_STRIDE * self._process)

    def on_train_batch_end(self, batch, logs=None):
        if self._sums:
            raise ValueError(
                "Every trainable variable must take part in the loss. Received: "
                f"{len(self._weights) - len(self._sums)} of {len(self._weights)} variables without "
                "a gradient; set trainable=False for their layers before training."
            )
        self._shift_seeds(-_SEED_STRIDE * self._process)
        add_up([v.value.data for v in self.model.metrics_variables], self._before)
        logs.update({k: float(v) for k, v in self.model.get_metrics_result().items()})

    def _shift_seeds(self, by):
        for variable in self._seeds:
            variable.value.data[0] += by

    def on_train_end(self, logs=None):
        self.stop()

    def stop(self):
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._sums.clear()


def make(mode, devices, model_devices, rules, timeout):
    """`TorchDevices`, or `Devices` for one; the arguments are those of `setup`."""
    if mode == "auto" and not os.environ.keys() & joining.TORCHRUN:
        return Devices()
    joining.join_torch(timeout, devices)
    return TorchDevices()
