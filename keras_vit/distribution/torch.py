"""Many devices with PyTorch: `torch.distributed`, one process for each device, by `torchrun`."""

import datetime

import keras
import numpy as np
import torch
import torch.distributed as dist

from keras_vit.distribution import evaluating, feeding
from keras_vit.distribution.devices import Devices, check_count
from keras_vit.distribution.processes import environment, seed_alike

_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")  # it sets them
_SEED_STRIDE = 1_000_003  # between the seeds of two processes; Keras adds the calls to them


def make(mode, devices, model_devices, rules, timeout):
    """`TorchDevices`, or `Devices` for one; the arguments are those of `setup`."""
    given = environment(_TORCHRUN)
    if not given:
        if mode == "auto":
            return Devices()
        raise ValueError(
            "With PyTorch each device has its own process. Received: no environment variables "
            f"{_TORCHRUN}; start the command with torchrun --nproc-per-node=N, which sets them."
        )
    processes = int(given["WORLD_SIZE"])
    check_count(devices, range(processes), processes, "torchrun starts a process for each.")
    backend = "gloo"
    if torch.cuda.is_available():
        backend = "nccl"
        torch.cuda.set_device(int(given["LOCAL_RANK"]))
    address = f"{given['MASTER_ADDR']}:{given['MASTER_PORT']}"
    try:
        dist.init_process_group(backend, timeout=datetime.timedelta(seconds=timeout))
    except (RuntimeError, ValueError) as error:  # torch's DistError is a RuntimeError
        raise ConnectionError(
            f"The {processes} processes did not meet at {address} within {timeout} s. Received: "
            f"process {given['RANK']}, {error}; start as many processes as WORLD_SIZE says, with "
            "ranks 0 to WORLD_SIZE - 1, and a free port that all of them reach."
        ) from error
    return TorchDevices()


class TorchDevices(Devices):
    """One of the processes that train a model together, each on its part of every batch."""

    mode = "data_parallel"

    def __init__(self):
        self.process, self.processes = dist.get_rank(), dist.get_world_size()
        self.replicas = self.processes
        self._callback = TrainTogether()
        seed_alike(self)

    def callbacks(self):
        return [self._callback]

    def evaluate(self, model, data, batch_size=None, **options):
        """Each process evaluates its shard of every batch, unless it is empty."""
        shards = evaluating.evaluation_shards(data, self.process, self.processes, batch_size)
        sums = evaluating.metric_sums(model, feeding.without_empty(shards), **options)
        return evaluating.metrics_of(model, self._of_all(sums))

    def gather(self, array):
        return np.stack(self._of_all(array))

    def _of_all(self, value):
        """The values of all processes."""
        values = [None] * self.processes
        dist.all_gather_object(values, value)
        return values

    def leave(self):
        self._callback.on_train_end()
        if dist.is_initialized():
            dist.destroy_process_group()


class TrainTogether(keras.callbacks.Callback):
    """Lets `model.fit` in each process train on the batch of all.

    All processes begin with the variables of the first. The gradient of each variable is averaged
    over the processes as soon as it is there, while others are still computed, so that clipping,
    accumulation and moving averages see the whole batch. (`DistributedDataParallel` does this for
    modules that are called as such, which Keras's trainer does not do.) Metrics count the images of
    all processes; each drops other units.
    """

    def __init__(self):
        super().__init__()
        self._hooks, self._sums = [], {}

    def on_train_begin(self, logs=None):
        self.on_train_end()  # of a training that an error has ended
        for v in self.model.variables:
            dist.broadcast(v.value.data, 0)
        self._weights = [v.value for v in self.model.trainable_variables]
        self._hooks = [w.register_post_accumulate_grad_hook(self._average) for w in self._weights]
        self._seeds = [v for v in self.model.variables if v.path.endswith("/seed_generator_state")]
        if rank := dist.get_rank():  # a dropout without a seed draws from the state of PyTorch
            torch.manual_seed(torch.initial_seed() + _SEED_STRIDE * rank)

    def _average(self, weight):
        weight.grad /= dist.get_world_size()
        self._sums[id(weight)] = dist.all_reduce(weight.grad, async_op=True)
        if len(self._sums) == len(self._weights):
            for sum_ in self._sums.values():
                sum_.wait()
            self._sums.clear()

    def on_train_batch_begin(self, batch, logs=None):
        self._before = [v.value.data.clone() for v in self.model.metrics_variables]
        self._shift_seeds(_SEED_STRIDE * dist.get_rank())

    def on_train_batch_end(self, batch, logs=None):
        if self._sums:
            raise ValueError(
                "Every trainable variable must take part in the loss. Received: "
                f"{len(self._weights) - len(self._sums)} of {len(self._weights)} variables without "
                "a gradient; set trainable=False for their layers before training."
            )
        self._shift_seeds(-_SEED_STRIDE * dist.get_rank())
        for variable, before in zip(self.model.metrics_variables, self._before):
            gained = (variable.value.data - before).double()  # by this process
            dist.all_reduce(gained)
            variable.value.data.copy_(before + gained.to(before.dtype))
        logs.update({k: float(v) for k, v in self.model.get_metrics_result().items()})

    def _shift_seeds(self, by):
        for variable in self._seeds:
            variable.value.data[0] += by

    def on_train_end(self, logs=None):
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._sums.clear()
