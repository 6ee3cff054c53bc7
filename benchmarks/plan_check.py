"""Compares the memory that `plan.py` computes with what is measured on small models.

    KERAS_BACKEND=jax python benchmarks/plan_check.py      # XLA's account of the compiled update
    KERAS_BACKEND=torch python benchmarks/plan_check.py    # what autograd keeps, and the process

JAX: `memory_analysis()` of the compiled update, on one and on four devices of the CPU, in float32;
on one also with rematerialisation. PyTorch: the storages that the backward pass keeps, by hooks,
with and without rematerialisation, in both precisions; and the peak of the process in a whole
update, where freed memory goes back to the system at once. Ratios are computed / measured.
"""

import argparse
import json
import os
import subprocess
import sys

import machine
import tables

DEVICES = 4
TINY = {"width": 128, "depth": 4, "num_heads": 4, "patch_size": 8, "image_size": 64}
SMALL = {"width": 256, "depth": 6, "num_heads": 4, "patch_size": 16, "image_size": 224}
MODELS = {"width 128, depth 4, 64 px": TINY, "width 256, depth 6, 224 px": SMALL}
# Layout, devices that share a model, of 1 or `DEVICES`; rematerialisation.
PLACES = (
    ("single", 1, False),
    ("single", 1, True),
    ("data_parallel", 1, False),
    ("model_parallel", 4, False),
    ("fully_sharded", 1, False),
)


def shapes_of(options):
    from plan_shapes import get_shapes
    from small_step import CLASSES

    chosen = dict(options)
    return get_shapes(None, chosen.pop("image_size"), CLASSES, **chosen)


def check_jax(options, batch, mode, model_devices, remat=False):
    """Computed and measured bytes on one device: of the state, and beside it in an update."""
    import plan_memory
    from small_step import compile_with_jax, make_batch, make_model

    from keras_vit import distribution

    shapes, count = shapes_of(options), 1 if mode == "single" else DEVICES
    shared = {"model_devices": model_devices} if mode == "model_parallel" else {}
    many = {"devices": count} if mode != "single" else {}
    with distribution.setup(mode, **many, **shared) as devices:
        model = make_model(devices, remat=remat, **options)
        found = compile_with_jax(devices, model, batch).memory_analysis()
        inputs = sum(array.nbytes for array in make_batch(model, batch)) // devices.replicas
    name = "data_parallel" if mode == "single" else mode
    placing = plan_memory.Placing(name, count, model_devices, remat=remat)
    computed = plan_memory.step(shapes, placing, batch // placing.groups)["peak"]
    return {
        "state": (sum(plan_memory.state(shapes, placing).values()), _arguments(found) - inputs),
        # The images are among the arguments for XLA, among the activations for a plan.
        "step": (computed, found.temp_size_in_bytes + inputs),
    }


def _arguments(found):
    return found.argument_size_in_bytes


def check_torch(options, batch, precision, remat):
    """Computed and measured bytes: what is kept for the backward pass, and of a whole update."""
    import keras
    import plan_memory
    import torch
    from small_step import make_batch, make_model

    from keras_vit.distribution import Devices

    shapes = shapes_of(options)
    rest = (precision, remat, "fused", "torch-cpu")
    placing = plan_memory.Placing("data_parallel", 1, 1, *rest)
    model = make_model(Devices(), remat=remat, dtype=precision, **options)
    images, labels = make_batch(model, batch)
    held = saved_bytes(model, torch.from_numpy(images), torch.from_numpy(labels))
    model.train_on_batch(images[:1], labels[:1])  # what is loaded late
    keras.utils.clear_session()
    base = machine.memory("VmRSS") if machine.reset_peak() else None
    model.train_on_batch(images, labels)
    peak = machine.memory() - base if base else None
    found = plan_memory.step(shapes, placing, batch)
    kept = plan_memory.kept_after_forward(shapes, placing, batch) - images.nbytes
    return {"kept": (kept, held), "step": (found["peak"] - images.nbytes, peak)}


def saved_bytes(model, images, labels):
    """Bytes of the storages that the backward pass of a loss keeps beside variables and inputs."""
    import torch

    known = {v.value.untyped_storage().data_ptr() for v in model.variables}
    known |= {tensor.untyped_storage().data_ptr() for tensor in (images, labels)}
    kept, sizes = [], {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            sizes[storage.data_ptr()] = storage.nbytes()
        kept.append(tensor)  # so that no other storage gets its address
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        torch.nn.functional.cross_entropy(model(images, training=True), labels)
    return sum(sizes.values())


def cases(backend, models):
    """Arguments of a check, in words and as they are passed."""
    for name in models:
        batch = 16 if MODELS[name] is SMALL else 32
        if backend == "jax":
            for mode, shared, remat in PLACES:
                words = f"{mode}, remat" if remat else mode
                yield (name, batch, words), (MODELS[name], batch, mode, shared, remat)
        else:
            for precision in ("float32", "mixed_bfloat16"):
                for remat in (False, True):
                    words = f"{precision}, remat" if remat else precision
                    yield (name, batch, words), (MODELS[name], batch, precision, remat)


def run(backend, found):
    """What each of some checks finds; of PyTorch each has a process, whose peak is its own."""
    groups = [found] if backend == "jax" else [[one] for one in found]
    return [answer for group in groups for answer in _in_fresh_process(backend, group)]


def _in_fresh_process(backend, found):
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"
    command = [sys.executable, os.path.abspath(__file__), "--cases", json.dumps(found)]
    environment["XLA_FLAGS"] = flags.strip()
    if backend == "torch":  # else glibc keeps what is freed, and the peak is its own
        environment |= {f"MALLOC_{what}_THRESHOLD_": "65536" for what in ("MMAP", "TRIM")}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()[-len(found) :]]


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="\n".join(__doc__.splitlines()[2:]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--cases", help=argparse.SUPPRESS)
    tables.add_outputs(parser)
    args = parser.parse_args(arguments)
    args.backend = os.environ.get("KERAS_BACKEND", "jax")
    if args.backend not in ("jax", "torch"):
        parser.error(f"KERAS_BACKEND must be jax or torch. Received: {args.backend!r}.")
    return args


def answer(args):
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    os.environ["KERAS_BACKEND"] = args.backend
    check = {"jax": check_jax, "torch": check_torch}[args.backend]
    import keras

    backend = __import__(args.backend)
    versions = {"keras": keras.__version__, args.backend: backend.__version__}
    for arguments in json.loads(args.cases):
        print(json.dumps({**check(*arguments), "versions": versions}), flush=True)


WORDS = {
    "jax": {"state": "state", "step": "beside it"},
    "torch": {"kept": "kept for the backward pass", "step": "update beside the state (process)"},
}


def markdown(rows, args, versions):
    words, lines = WORDS[args.backend], []
    columns = ["model", "batch", "how"]
    for text in words.values():
        columns += [f"{text}: computed, MiB", "measured", "ratio"]
    for (name, batch, how), found in rows:
        line = [name, batch, how]
        for key in words:
            computed, measured = found[key]
            ratio = tables.number(measured and computed / measured, 2)
            line += [f"{computed / 2**20:.1f}", tables.number(measured and measured / 2**20), ratio]
        lines.append(line)
    line = tables.machine_line(machine.describe(), versions)
    title = f"### The plan's memory beside the measured, {args.backend}"
    return "\n\n".join([title, tables.table(columns, lines), line])


def main():
    args = parse()
    if args.cases:
        return answer(args)
    chosen = list(cases(args.backend, args.models))
    answers = run(args.backend, [arguments for _, arguments in chosen])
    rows = [(words, found) for (words, _), found in zip(chosen, answers)]
    text = markdown(rows, args, rows[0][1]["versions"])
    print(text)
    tables.write({"rows": rows}, text, args.json, args.markdown)


if __name__ == "__main__":
    main()
