"""Several processes with JAX: from the environment variables of `keras.distribution`."""

import os

from keras_vit.distribution.meeting import Meeting, begin_alike, engine_versions
from keras_vit.distribution.rendezvous import split_address

_PREFIX = "KERAS_DISTRIBUTION_"
_NEEDED = tuple(_PREFIX + name for name in ("JOB_ADDRESSES", "NUM_PROCESSES", "PROCESS_ID"))
_JOINED = []  # JAX joins the others once in the life of a process


def join(timeout):
    """The `Meeting` of the processes that the environment tells of, or None for a single one.

    Args:
        timeout: seconds that the processes wait for each other.

    Raises:
        ValueError: the variables contradict each other, or JAX has begun without the others.
        ConnectionError: the processes do not find each other; the message names the address.
    """
    import jax

    if _JOINED:
        return _JOINED[0]
    read = _read()
    if read is None:
        return None
    addresses, processes, process = read
    # JAX's own service for Kubernetes and TPUs takes SIGTERM for itself.
    jax.config.update("jax_enable_preemption_service", False)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    meeting = Meeting(
        addresses[0],
        process,
        processes,
        engine_versions(jax),
        timeout,
        addresses if len(addresses) == processes else None,
    )
    try:
        _initialize(addresses[0], processes, process, timeout)
        count = str(jax.local_device_count())
        counts = meeting.gather(count)
        if len(set(counts)) > 1:
            raise ValueError(
                "Every process must have as many devices as the others. Received: "
                + ", ".join(f"{each} in process {i}" for i, each in enumerate(counts))
                + "; start the processes on hosts of one kind."
            )
    except BaseException as error:
        meeting.leave_on(error)
        raise
    _JOINED.append(meeting)
    begin_alike(meeting)
    return meeting


def _read():
    """Addresses, number of processes and number of this one; None where there is one process."""
    import jax

    given = {name: os.environ[name] for name in _NEEDED if os.environ.get(name)}
    if jax.distributed.is_initialized():
        raise ValueError(
            "distribution.setup itself lets JAX join other processes. Received: a call of "
            f"jax.distributed.initialize before it; leave it out, and set {_NEEDED}."
        )
    if not given or given.get(_NEEDED[1]) == "1":
        return None
    missing = [name for name in _NEEDED if name not in given]
    if missing:
        raise ValueError(
            "Several processes of JAX need the environment variables "
            f"{_NEEDED}. Received: no {missing}; set them in every process, or none of them."
        )
    processes, process = (_number(name, given[name]) for name in _NEEDED[1:])
    addresses = given[_NEEDED[0]].split(",")
    if not 0 <= process < processes:
        raise ValueError(
            "The processes are numbered from 0. Received: "
            f"{_NEEDED[2]}={process}, {_NEEDED[1]}={processes}; use 0 to {processes - 1}."
        )
    if len(addresses) not in (1, processes):
        raise ValueError(
            f"{_NEEDED[0]} must have the address of process 0, or those of all. Received: "
            f"{len(addresses)} addresses, {_NEEDED[1]}={processes}."
        )
    return addresses, processes, process


def _number(name, text):
    if not text.isdigit():
        raise ValueError(f"{name} must be a whole number. Received: {text!r}.")
    return int(text)


def _initialize(address, processes, process, timeout):
    import jax

    host, _ = split_address(address)
    own = {"coordinator_bind_address": address} if host in ("localhost", "127.0.0.1") else {}
    try:
        jax.distributed.initialize(
            address,
            processes,
            process,
            cluster_detection_method="deactivate",
            initialization_timeout=timeout,
            # Who is lost is known from the meeting, at once and by name.
            heartbeat_timeout_seconds=max(100, 2 * timeout),
            shutdown_timeout_seconds=timeout,
            **own,
        )
    except RuntimeError as error:
        if "must be called before" in str(error):
            raise ValueError(
                "Processes must join before JAX computes anything. Received: a JAX whose devices "
                "are in use; call distribution.setup first."
            ) from error
        raise ConnectionError(
            f"JAX's processes did not join at {address}. Received: process {process} of "
            f"{processes}, {str(error).splitlines()[0]}; choose a port that all of them reach."
        ) from error
