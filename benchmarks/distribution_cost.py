"""What many devices cost: overhead of a step, and bytes sent beside the least that is possible.

    python benchmarks/distribution_cost.py --backends jax tensorflow torch
    python benchmarks/distribution_cost.py --backends jax --devices 2 4 --batch 64

Virtual devices of one CPU share its cores: JAX and TensorFlow within one process, PyTorch as two
processes over gloo. So the work of a step and what computes it are the same as on one device, and
what a step takes longer is the overhead of cutting, summing and waiting. It says nothing about the
speed of a network. The model is small, which makes the overhead look large.

Bytes are those that one device sends in an update where devices form a ring: of the collective
operations in XLA's compiled program, of what `tf.distribute` sums, and of the buckets that PyTorch
gives to gloo. The least that a layout can do with is that of `plan_traffic`: 2 (n - 1) / n times
the bytes of all gradients in data parallel; four sums of the tokens in each block where n devices
share a model; half as much again as data parallel where all is cut.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys

import machine
import tables

HERE = pathlib.Path(__file__).resolve().parent
BACKENDS = ("jax", "tensorflow", "torch")
MODEL = {"width": 192, "depth": 4, "num_heads": 4, "patch_size": 8, "image_size": 64}
SECONDS = 900


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="\n".join(__doc__.splitlines()[2:]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--backends", nargs="+", default=BACKENDS, choices=BACKENDS)
    parser.add_argument("--devices", type=int, nargs="+", default=(2, 4), help="of JAX alone")
    for name, value in MODEL.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--batch", type=int, default=32, help="images of a step, all devices")
    parser.add_argument("--steps", type=int, default=3, help="of a turn")
    parser.add_argument("--turns", type=int, default=10)
    tables.add_outputs(parser)
    args = parser.parse_args(arguments)
    for n in (*args.devices, 2):
        if n < 2 or args.batch % n:
            parser.error(
                "--devices must be 2 or more, and divide --batch. Received: "
                f"--devices {n}, --batch {args.batch}."
            )
        if args.num_heads % n:
            parser.error(
                "--devices must divide --num-heads, which the model-parallel layout cuts. "
                f"Received: --devices {n}, --num-heads {args.num_heads}."
            )
    missing = [name for name in args.backends if importlib.util.find_spec(name) is None]
    if missing:
        parser.error(f"Not installed: {missing}.")
    return args


def runs(backend, devices):
    """(mode, devices, devices that share a model) of every run on a backend, one device first."""
    yield "single", 1, 1
    for n in devices if backend == "jax" else (2,):
        yield "data_parallel", n, 1
    if backend == "jax":
        n = max(devices)
        yield "model_parallel", n, n
        if n > 2:
            yield "model_parallel", n, 2
        yield "fully_sharded", n, 1


def run(backend, mode, devices, model_devices, args):
    """What the processes of one run say: milliseconds of each turn, bytes.

    Raises:
        RuntimeError: one of them failed; its last lines are in the message.
    """
    settings = {"mode": mode, "devices": devices, "model_devices": model_devices}
    settings |= {"options": {name: getattr(args, name) for name in MODEL}}
    settings |= {name: getattr(args, name) for name in ("batch", "steps", "turns")}
    count = devices if backend == "torch" else 1
    port = _free_port()
    started = [
        subprocess.Popen(
            [sys.executable, str(HERE / "distribution_job.py"), json.dumps(settings)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(backend, devices, count, rank, port),
        )
        for rank in range(count)
    ]
    try:
        said = [process.communicate(timeout=SECONDS) for process in started]
    finally:
        for process in started:
            process.kill()
    for process, (_, errors) in zip(started, said):
        if process.returncode:
            raise RuntimeError(f"{backend}, {mode} on {devices} failed: {errors[-2000:]}")
    return json.loads(said[0][0].splitlines()[-1])


def _environment(backend, devices, processes, rank, port):
    threads = max(len(machine.cores()) // processes, 1)
    paths = [str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    found = {
        **os.environ,
        **(machine.thread_environment(threads) if backend == "torch" else {}),
        "KERAS_BACKEND": backend,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    if backend == "jax":
        found["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    if processes > 1:
        found |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes)}
        found |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return found


def _free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def measure(args, say):
    """Every run as a dict; that on one device is made first and last, to see the machine drift."""
    rows, versions = [], {}
    for backend in args.backends:
        mine = list(runs(backend, args.devices))
        found = []
        for mode, n, shared in [*mine, mine[0]]:
            facts = run(backend, mode, n, shared, args)
            versions |= facts["versions"]
            facts |= {"backend": backend, "mode": mode, "devices": n, "model_devices": shared}
            found.append(facts)
            say(f"{backend}, {mode} on {n}: {statistics.median(facts['ms']):.1f} ms")
        last = found.pop()
        drift = [statistics.median(each["ms"]) for each in (found[0], last)]
        one = min(found[0]["ms"] + last["ms"])
        for facts in found:
            facts |= {"one_device_ms": one, "drift": drift}
        rows += found
    return rows, versions


def markdown(rows, args, versions):
    columns = ("backend", "layout", "devices", "ms per step (range)", "overhead")
    columns += ("MB sent per device", "least in this layout, MB", "ratio", "of it")
    lines = []
    for row in rows:
        ms = statistics.median(row["ms"])
        spread = f"{ms:.1f} ({min(row['ms']):.1f} to {max(row['ms']):.1f})"
        single = row["mode"] == "single"
        more = min(row["ms"]) / row["one_device_ms"] - 1
        overhead = "-" if single else f"{100 * more:+.0f}%"
        shared = f", {row['model_devices']} share a model" if row["model_devices"] > 1 else ""
        line = [row["backend"], row["mode"] + shared, row["devices"], spread, overhead]
        if single:
            line += ["-"] * 4
        else:
            kinds = sorted(row["kinds"].items(), key=lambda kind: -kind[1])
            shares = ", ".join(f"{k} {100 * v / row['sent']:.0f}%" for k, v in kinds)
            ratio = row["sent"] / row["least"]
            line += [f"{row['sent'] / 1e6:.3f}", f"{row['least'] / 1e6:.3f}", f"{ratio:.3f}"]
            line.append(shares)
        lines.append(line)
    title = f"### Cost of many devices: width {args.width}, depth {args.depth}, "
    title += f"{args.image_size} px, batch {args.batch}, float32, {args.turns} turns of "
    title += f"{args.steps} steps"
    drifts = {row["backend"]: row["drift"] for row in rows}
    text = "; ".join(f"{b} {a:.1f} and {z:.1f} ms" for b, (a, z) in drifts.items())
    notes = "Overhead compares the fastest turns, which other work on the machine disturbs least. "
    notes += f"One device, measured before and after the others: {text}."
    line = tables.machine_line(machine.describe(), versions)
    return "\n\n".join([title, tables.table(columns, lines), notes, line])


def main():
    args = parse()
    say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
    try:
        rows, versions = measure(args, say)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        sys.exit(str(error))
    text = markdown(rows, args, versions)
    print(text)
    tables.write({"rows": rows, "versions": versions}, text, args.json, args.markdown)


if __name__ == "__main__":
    main()
