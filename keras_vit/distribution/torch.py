"""Many devices with PyTorch: `torch.distributed`, one process for each device, by `torchrun`."""

import datetime
import functools
import os
import re

import keras

from keras_vit.distribution.devices import Devices, copied
from keras_vit.distribution.shares import share_evaluation, share_training

_SEED_STRIDE = 1_000_003  # between the seeds of two processes; Keras adds the calls to them
_NEEDED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


class TorchDevices(Devices):
    """One of the processes that train a model together, each on its part of every batch.

    Gradients are averaged by `DistributedDataParallel` while they are computed; so clipping,
    accumulation and averages see those of the whole batch. Metrics are summed after each batch.
    """

    mode = "data_parallel"

    def __init__(self):
        import torch.distributed as dist

        self.process, self.processes = dist.get_rank(), dist.get_world_size()
        self.replicas = self.processes

    def prepare(self, model):
        """See `Devices.prepare`."""
        if "call" in vars(model):
            return  # done before
        _cut_calls(model)
        _own_noise(model, self.process)
        for name in ("train_step", "test_step"):
            step = functools.partial(_step, model, getattr(model, name))
            model.__dict__[name] = functools.partial(self._together, step)

    def _together(self, step, data):
        try:
            return step(data)
        except RuntimeError as error:
            if not re.search("gloo|nccl|connection|peer|timed out|barrier", str(error), re.I):
                raise
            raise ConnectionError(
                f"Process {self.process} of {self.processes} lost another process, which was "
                "killed, has failed (see its output), or takes too long. Received: "
                f"{str(error).splitlines()[0]}; start all again with the same command: training "
                "goes on from the last checkpoint."
            ) from error

    def share(self, pipeline):
        """See `Devices.share`."""
        super().share(pipeline)
        return share_training(pipeline, self.process, self.processes)

    def share_evaluation(self, data):
        """See `Devices.share_evaluation`."""
        return share_evaluation(data, self.process, self.processes)

    def local_copy(self, model):
        """See `Devices.local_copy`."""
        return copied(model)

    def gather(self, text):
        """See `Devices.gather`."""
        import torch.distributed as dist

        texts = [None] * self.processes
        dist.all_gather_object(texts, text)
        return texts

    def any_of(self, *flags):
        """See `Devices.any_of`."""
        import torch

        found = torch.tensor([int(flag) for flag in flags], device=_device())
        torch.distributed.all_reduce(found, torch.distributed.ReduceOp.MAX)
        return [bool(flag) for flag in found.tolist()]

    def close(self):
        """See `Devices.close`."""
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()
        super().close()


def _cut_calls(model):
    """Lets the model's calls with a gradient pass through DistributedDataParallel.

    It also gives every process the weights of the first.
    """
    import torch

    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *args, **kwargs):
            return call(*args, **kwargs)

    call = model.call
    parallel = torch.nn.parallel.DistributedDataParallel(Module())

    @functools.wraps(call)
    def cut(*args, **kwargs):
        trains = kwargs.get("training") and torch.is_grad_enabled()
        return parallel(*args, **kwargs) if trains else call(*args, **kwargs)

    model.__dict__["call"] = cut


def _own_noise(model, process):
    """Lets each process drop other units, and a run that is continued those it would have."""
    import torch

    train_step = model.train_step
    seeds = [v for v in model.variables if v.path.endswith("/seed_generator_state")]
    first = [torch.get_rng_state()]
    torch.distributed.broadcast_object_list(first)
    torch.set_rng_state(first[0])

    def shift(by):  # layers with a generator of their own
        for variable in seeds:
            variable.value.data[0] += by

    def step(data):
        # All processes draw this number alike, and their common state is what checkpoints keep.
        drawn = int(torch.randint(2**62, ()))
        state = torch.get_rng_state()
        torch.manual_seed(hash((drawn, process)) % 2**63)
        shift(_SEED_STRIDE * process)
        try:
            return train_step(data)
        finally:
            shift(-_SEED_STRIDE * process)
            torch.set_rng_state(state)

    model.__dict__["train_step"] = step


def _step(model, step, data):
    """A step whose metrics count the images of all processes."""
    import torch

    metrics = [variable.value.data for variable in model.metrics_variables]
    before = [value.clone() for value in metrics]
    if len(keras.tree.flatten(data)[0]):  # the rest of a split may be nothing for this process
        step(data)
    after = [variable.value.data for variable in model.metrics_variables]
    added = [new - old for new, old in zip(after, before)]
    if added:
        flat = torch.cat([part.double().flatten() for part in added])
        torch.distributed.all_reduce(flat)
        parts = flat.split([part.numel() for part in added])
        for variable, old, part in zip(model.metrics_variables, before, parts):
            variable.assign(old + part.view(old.shape).to(old.dtype))
    return model.get_metrics_result()


def _device():
    import torch

    return "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"


def make(mode, devices=None, model_devices=None, rules=None, timeout=300):
    """`TorchDevices`, or `Devices` for one; the arguments are those of `setup`."""
    import torch

    given = {name: os.environ[name] for name in _NEEDED if name in os.environ}
    if mode == "auto" and not given:
        return Devices()
    missing = [name for name in _NEEDED if name not in given]
    if missing:
        raise ValueError(
            "With PyTorch each device has its own process. Received: no environment variables "
            f"{missing}; start the command with torchrun --nproc-per-node=N, which sets them."
        )
    processes = int(given["WORLD_SIZE"])
    if devices is not None and devices != processes:
        raise ValueError(
            "The number of devices is that of the processes. Received: "
            f"devices={devices}, WORLD_SIZE={processes}; pass that number to torchrun alone."
        )
    backend = "gloo"
    if torch.cuda.is_available():
        backend = "nccl"
        torch.cuda.set_device(int(given["LOCAL_RANK"]))
    address = f"{given['MASTER_ADDR']}:{given['MASTER_PORT']}"
    try:
        torch.distributed.init_process_group(backend, timeout=datetime.timedelta(seconds=timeout))
    except (RuntimeError, ValueError) as error:  # torch's DistError is a RuntimeError
        raise ConnectionError(
            f"The {processes} processes did not meet at {address} within {timeout} s. Received: "
            f"process {given['RANK']}, {error}; start as many processes as WORLD_SIZE says, with "
            "ranks 0 to WORLD_SIZE - 1, and a free port that all of them reach."
        ) from error
    return TorchDevices()
