"""keras_vit on one accelerator: batch sizes, precision, fused attention, compilation, memory.

    python benchmarks/gpu.py --models B16 L16 --backends jax torch --batches 64 128 256
    python benchmarks/gpu.py --backends jax --task train --vary remat flash --json gpu.json
    python benchmarks/gpu.py --models Ti16 --depth 1 --image-size 32 --batches 1 2    # on a CPU

The data lie on the device, steps are enqueued and waited for at the end of a turn, and each point
has a fresh process. First, the batch sizes in bfloat16 (the policy mixed_bfloat16), until memory
does not suffice; then, at the best of them, each of --vary: float32, fused (flash) attention on and
off, XLA or torch.compile on and off, and rematerialisation, which also tries larger batches.

Model FLOP utilisation is operations / (time x peak), where a training step counts three forward
passes and what rematerialisation repeats does not count. The peak is that of the device's name, or
--peak-tflops; besides, each backend's own products of matrices are timed, in both precisions.
"""

import argparse
import itertools
import os
import sys
import time

import machine
import tables
from architecture import get_architecture
from compare import interpreters, split_specs
from gpu_tables import markdown
from peaks import peak_of
from peers import OURS, PEERS
from pool import WorkerError, run_once
from settings import BACKENDS, Settings, parse_spec
from worker import PRODUCTS

VARIATIONS = {
    "dtype": ({"dtype": "float32"},),
    "flash": ({"flash": "true"}, {"flash": "false"}),
    "jit": ({"jit": "true"}, {"jit": "false"}),
    "remat": ({"remat": "true"},),
}


def parse(arguments=None):
    text = __doc__.splitlines()
    parser = argparse.ArgumentParser(
        description=text[0],
        epilog="\n".join(text[2:]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--models", nargs="+", default=["B16"])
    parser.add_argument("--backends", nargs="+", default=["jax", "torch"], choices=BACKENDS)
    parser.add_argument("--tasks", nargs="+", default=["train"], choices=("infer", "train"))
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 64, 128, 256, 512])
    parser.add_argument(
        "--vary", nargs="*", default=list(VARIATIONS), choices=list(VARIATIONS), metavar="WHAT"
    )
    parser.add_argument("--peers", default="timm,timm[jit=true]", help="on torch; or none")
    parser.add_argument("--gelu", default="tanh", choices=("tanh", "erf"), help="of keras_vit")
    parser.add_argument("--optimizer", default="keras", choices=("keras", "ours"))
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--depth", type=int)
    parser.add_argument("--steps", type=int, default=20, help="in a turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--peak-tflops", type=float, help="of the device in bfloat16")
    parser.add_argument("--minutes", type=float, help="begin no further point after this time")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for an answer")
    parser.add_argument("--python", action="append", default=[], metavar="[NAME,...=]PATH")
    tables.add_outputs(parser)
    args = parser.parse_args(arguments)
    try:
        for model in args.models:
            get_architecture(model, args.image_size, args.depth)
        args.specs = [] if args.peers == "none" else list(map(parse_spec, split_specs(args.peers)))
    except ValueError as error:
        parser.error(str(error))
    return args


class Sweep:
    """The points measured so far, and how another one is."""

    def __init__(self, args, say):
        self.args, self.say = args, say
        self.points, self.products, self.left_out = [], {}, []
        self.machine, self.start = machine.describe(), time.monotonic()

    def measure(self, settings):
        """A point: its figures, or why there are none."""
        label = settings.replace(dtype="float32").label  # the dtype has a column of its own
        point = {"label": label, "backend": settings.backend, "batch": settings.batch}
        point |= {"model": settings.architecture.name, "task": settings.task}
        point |= {name: getattr(settings, name) for name in ("dtype", "jit", "flash", "remat")}
        if self._is_late():
            self.left_out.append(
                f"{label}, {settings.dtype}, batch {settings.batch}, {settings.backend}"
            )
            return None
        try:
            point |= self._run(settings)
        except WorkerError as error:
            point |= {"error": str(error), "fits": not error.memory, "missing": error.missing}
        self.points.append(point)
        self._tell(point)
        return point

    def _is_late(self):
        minutes = (time.monotonic() - self.start) / 60
        return self.args.minutes is not None and minutes > self.args.minutes

    def _run(self, s):
        options = {"python": interpreters(self.args.python)(s.name), "timeout": self.args.timeout}
        facts, turns = run_once(s, self.args.steps, self.args.turns, **options)
        ms = tables.summary(list(itertools.chain(*(turn["wall"] for turn in turns))))
        device = facts["accelerator"]
        peak = self.args.peak_tflops * 1e12 if self.args.peak_tflops else peak_of(device)
        rate = s.operations / ms["median"] * 1e3
        return {
            "ms": ms,
            "images_per_second": s.batch / ms["median"] * 1e3,
            "tflops": rate / 1e12,
            "utilisation": rate / peak if peak and s.dtype == "bfloat16" else None,
            "memory": turns[-1]["device_memory"] or turns[-1]["step_memory"],
            "device": device,
            **{name: facts[name] for name in ("first_s", "parameters", "versions")},
        }

    def time_products(self, settings):
        """The best rate of the backend's products in both precisions, in TFLOP/s."""
        for dtype in ("bfloat16", "float32"):
            if self._is_late():
                return
            s = settings.replace(name=PRODUCTS, dtype=dtype)
            try:
                python = interpreters(self.args.python)(OURS)
                _, turns = run_once(s, 1, 3, python=python, timeout=self.args.timeout)
            except WorkerError as error:
                self.say(f"products on {s.backend}: {error}")
                continue
            rates = [max(turn["wall"].values()) / 1e3 for turn in turns]
            key = f"{s.backend} {s.architecture.name} {dtype}"
            self.products[key] = tables.summary(rates)["median"]

    def _tell(self, point):
        what = f"{point['model']} {point['task']} {point['label']} on {point['backend']}"
        rate = point.get("error") or f"{point['images_per_second']:.1f} images/s"
        share = point.get("utilisation")
        self.say(f"{what}, batch {point['batch']}: {rate}" + (f", {share:.1%}" if share else ""))
        self.write()

    def write(self):
        report = {"machine": self.machine, "points": self.points, "products": self.products}
        report |= {"left_out": self.left_out}
        text = markdown(report)
        tables.write(report, text, self.args.json, self.args.markdown)
        return text

    def batches(self, settings, batches):
        """Measures growing batches until one does not run; the best point, or None."""
        best = None
        for batch in batches:
            point = self.measure(settings.replace(batch=batch))
            if point is None or "error" in point:
                break
            if best is None or point["images_per_second"] > best["images_per_second"]:
                best = point
        return best


def sweep(args, say):
    """All points of all models, backends and tasks."""
    found = Sweep(args, say)
    for model, backend, task in itertools.product(args.models, args.backends, args.tasks):
        architecture = get_architecture(model, args.image_size, args.depth)
        base = Settings(OURS, backend, architecture, task, args.batches[0], "bfloat16")
        base = base.replace(resident=True, warmup=args.warmup)
        ours = base.replace(gelu=args.gelu, optimizer=args.optimizer)
        found.time_products(base.replace(batch=args.batches[-1]))
        best = found.batches(ours, args.batches)
        if best:
            vary(found, ours, best["batch"], args)
        for name, options in args.specs:
            if backend in PEERS[name].backends:
                found.batches(base.replace(name=name, **options), args.batches)
    return found


def vary(found, settings, batch, args):
    """Each of --vary by itself, at one batch size; rematerialisation at the larger ones too."""
    for what in args.vary:
        for options in VARIATIONS[what]:
            if settings.backend == "jax" and "jit" in options:
                continue  # JAX always compiles
            if settings.task == "infer" and "remat" in options:
                continue  # there is no backward pass
            batches = [b for b in args.batches if b >= batch] if what == "remat" else [batch]
            found.batches(settings.replace(**options), batches)


def main():
    args = parse()
    # One process at a time: JAX may take nearly all of the device's memory.
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.95")
    say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
    try:
        found = sweep(args, say)
    except KeyboardInterrupt:
        sys.exit("Interrupted; what was measured before is in the files, if any were asked for.")
    print(found.write())
    if all("error" in point for point in found.points):
        sys.exit("Nothing could be measured; the reasons are above.")


if __name__ == "__main__":
    main()
