"""Several processes with TensorFlow: `MultiWorkerMirroredStrategy`, as TF_CONFIG tells."""

import json
import os
import socket

import keras
import numpy as np

from keras_vit.distribution.meeting import Meeting, begin_alike, engine_versions
from keras_vit.distribution.rendezvous import split_address
from keras_vit.distribution.shares import share_evaluation

_JOINED = []  # TensorFlow joins the others once in the life of a process


def join(timeout):
    """The `Meeting` and the strategy of the workers of TF_CONFIG, or None for a single process.

    Args:
        timeout: seconds that the processes wait for each other.

    Raises:
        ValueError: TF_CONFIG is not what is needed, or TensorFlow has begun without the others.
        ConnectionError: the processes do not find each other; the message names the address.
    """
    if _JOINED:
        return _JOINED[0]
    read = _read(os.environ.get("TF_CONFIG"))
    if read is None:
        return None
    import tensorflow as tf

    addresses, process = read
    if process:  # where process 0 listens is tried by the meeting
        _check_port(addresses[process], process)
    meeting = Meeting(
        addresses[0], process, len(addresses), engine_versions(tf), timeout, addresses
    )
    try:
        try:
            strategy = _strategy()
        except RuntimeError as error:
            if "program startup" not in str(error):
                raise
            raise ValueError(
                "Processes must join before TensorFlow computes anything. Received: a TensorFlow "
                "whose devices are in use; call distribution.setup first."
            ) from error
        replicas = meeting.gather(str(strategy.extended._num_devices_per_worker))
        if len(set(replicas)) > 1:
            raise ValueError(
                "Every process must have as many devices as the others. Received: "
                + ", ".join(f"{each} in process {i}" for i, each in enumerate(replicas))
                + "; start the processes on hosts of one kind."
            )
    except BaseException as error:
        meeting.leave_on(error)
        raise
    _JOINED.append((meeting, strategy))
    begin_alike(meeting)
    return _JOINED[0]


def _read(text):
    """Addresses of the workers and the number of this one, or None where there is one process."""
    try:
        found = json.loads(text or "{}")
        cluster, task = found.get("cluster", {}), found.get("task", {})
        chief, workers = cluster.get("chief", []), cluster.get("worker", [])
        if len(chief) + len(workers) < 2:
            return None
        kind, index = task.get("type"), task.get("index")
        group = {"chief": chief, "worker": workers}[kind]
        group[index]
    except (ValueError, AttributeError, KeyError, IndexError, TypeError) as error:
        raise ValueError(
            'TF_CONFIG must be JSON such as {"cluster": {"worker": ["node0:29500", "node1:29500"]},'
            ' "task": {"type": "worker", "index": 0}}, with the index of this process among the '
            f"workers. Received: {text!r}."
        ) from error
    return [*chief, *workers], index + (len(chief) if kind == "worker" else 0)


def _check_port(address, process):
    host, port = split_address(address)
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        raise ConnectionError(
            f"Process {process} cannot listen at {host}:{port}. Received: {error}; another run or "
            "program may have the port: choose free ones, the same TF_CONFIG in all processes."
        ) from error


def _strategy():
    import tensorflow as tf

    class Strategy(tf.distribute.MultiWorkerMirroredStrategy):
        def reduce(self, reduce_op, value, axis=None):
            # Keras 3 asks for the mean of metrics over axis 0, which scalars do not have.
            if axis == 0 and all(each.shape.rank == 0 for each in _locals(self, value)):
                axis = None
            return super().reduce(reduce_op, value, axis=axis)

    return Strategy()


def _locals(strategy, value):
    return strategy.experimental_local_results(value)


class Shares:
    """What a process feeds to its replicas, in batches of one replica.

    TensorFlow's own sharding would let every process read all images and drop those of others.

    Args:
        strategy: a `MultiWorkerMirroredStrategy`.
        process, processes: the number of this process, and how many there are.
    """

    def __init__(self, strategy, process, processes):
        self.strategy, self.process = strategy, process
        self.replicas = strategy.num_replicas_in_sync
        self.own = self.replicas // processes

    def training(self, dataset):
        """A `tf.data.Dataset` of a process's parts of batches, as one that is distributed."""
        import tensorflow as tf

        def cut_evenly(*batch):
            def rows(x):
                return tf.reshape(x, tf.concat([[self.own, -1], tf.shape(x)[1:]], 0))

            return tf.data.Dataset.from_tensor_slices(keras.tree.map_structure(rows, batch))

        if self.own > 1:
            dataset = dataset.flat_map(cut_evenly)
        return self.strategy.distribute_datasets_from_function(lambda context: dataset)

    def evaluation(self, data):
        """What `share_evaluation` takes, as a distributed dataset; every image counts once."""
        import tensorflow as tf

        first, parts = self.process * self.own, []
        for replica in range(first, first + self.own):
            parts.append(share_evaluation(data, replica, self.replicas))

        def batches():
            for step in range(len(parts[0])):
                for part in parts:
                    yield tuple(part[step])

        def spec(x):
            x = np.asarray(x)
            return tf.TensorSpec((None, *x.shape[1:]), x.dtype)

        signature = keras.tree.map_structure(spec, tuple(parts[0][0]))
        dataset = tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(2)
        distributed = self.strategy.distribute_datasets_from_function(lambda context: dataset)
        # Not known by itself, so that Keras would warn at the end that the data ran out.
        distributed._cardinality = len(parts[0])
        return distributed
