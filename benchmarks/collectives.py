"""What one update communicates: read from XLA's program, or noted while a step is made."""

import contextlib
import math
import re

import plan_traffic

_KINDS = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
_LINE = re.compile(rf"= (.+?) ({_KINDS})(-start)?\((.*)")
_SHAPE = re.compile(r"\b([a-z]+)(\d+)(?:e\w+)?\[([\d,]*)\]")


def of_hlo(text):
    """The collective operations of a compiled program of XLA, as `compiled.as_text()` has it.

    Returns:
        A list of dicts: `"kind"`, `"bytes"` of the results on one device, `"chips"` of a group,
        and `"sent"`, the bytes that each device sends where the chips form a ring.
    """
    found = []
    for line in text.splitlines():
        match = _LINE.search(line)
        if not match:
            continue
        result, kind, starts, rest = match.groups()
        sizes = [_size(*shape) for shape in _SHAPE.findall(result)]
        # What an asynchronous operation begins with is (operands, results).
        total = sum(sizes) / 2 if starts and kind == "all-reduce" else sum(sizes)
        total = max(sizes, default=0) if starts and kind != "all-reduce" else total
        chips = group_size(rest)
        found.append({"kind": kind, "bytes": total, "chips": chips, "sent": 0})
        found[-1]["sent"] = sent(**found[-1]) if chips > 1 else 0
    return found


def _size(kind, bits, shape):
    return math.prod(int(side) for side in shape.split(",") if side) * int(bits) / 8


def group_size(text):
    """How many devices take part in an operation of one group, from the rest of its line."""
    groups = re.search(r"replica_groups=(\S+)", text)
    if groups is None:
        return 2  # a permutation: each sends to another
    if mesh := re.search(r"replica_groups=mesh\[(.*?)\](?:, device_ids=\(.*?\))? \{(.*?)\}", text):
        sizes = dict(re.findall(r"('\w+')=(\d+)", mesh[1]))
        return math.prod(int(sizes[axis]) for axis in mesh[2].split(","))
    if iota := re.match(r"\[(\d+),(\d+)\]<=", groups[1]):
        return int(iota[2])
    first = re.match(r"\{\{([\d,]*)\}", groups[1])
    if first is None:
        raise ValueError(f"Groups of an unknown form. Received: {groups[0]!r}.")
    return len(first[1].split(","))


def sent(kind, bytes, chips, **_):
    """Bytes that each of the chips sends, in a ring."""
    if kind == "all-reduce":
        return plan_traffic.all_reduce(bytes, chips)
    if kind == "reduce-scatter":  # its results are the parts
        return plan_traffic.reduce_scatter(bytes * chips, chips)
    if kind == "collective-permute":
        return bytes
    return plan_traffic.all_gather(bytes, chips)  # an all-to-all keeps one part, too


@contextlib.contextmanager
def of_tensorflow(devices):
    """Yields a list that gets what replicas sum within the `with` block, when it is traced."""
    import tensorflow as tf

    found, replica = [], tf.distribute.ReplicaContext
    all_reduce = replica.all_reduce

    def noted(self, operation, value, *args, **kwargs):
        if tf.get_static_value(tf.convert_to_tensor(self.replica_id_in_sync_group)) in (0, None):
            for tensor in tf.nest.flatten(value):
                nbytes = tensor.shape.num_elements() * tensor.dtype.size
                found.append({"kind": "all-reduce", "bytes": nbytes, "chips": devices})
                found[-1]["sent"] = sent(**found[-1])
        return all_reduce(self, operation, value, *args, **kwargs)

    replica.all_reduce = noted
    try:
        yield found
    finally:
        replica.all_reduce = all_reduce


@contextlib.contextmanager
def of_torch(devices):
    """Yields a list that gets what gloo sums within the `with` block, from PyTorch's profiler."""
    from torch.profiler import ProfilerActivity, profile

    found = []
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        yield found
    for event in profiler.events():
        if event.name == "gloo:all_reduce":
            values = sum(math.prod(shape) for shape in event.input_shapes if shape)
            found.append({"kind": "all-reduce", "bytes": 4 * values, "chips": devices})
            found[-1]["sent"] = sent(**found[-1])
