"""What the training of a ViT on many chips holds and sends, from XLA's program for as many chips.

    python benchmarks/plan.py --variant B/16 --devices 8 --batch 256
    python benchmarks/plan.py --variant H/14 --devices 256 --batch 4096 --ema --hbm 32
    python benchmarks/plan.py --devices 4 --batch 64 --model-devices 2 4 --remat no --check

For every layout of `keras_vit.distribution` the update that `fit` makes is compiled with JAX for N
virtual devices of the CPU. Its variables have shapes alone, so that a model of a billion parameters
for 256 chips takes neither memory nor chips, and half a minute for each layout. Memory is XLA's own
account (`memory_analysis`), bytes sent are those of the collective operations in the program where
the chips form a ring. Compiled programs of other chips differ: their compilers fuse more, and leave
more or less in memory; leave a tenth free. Only float32 is planned, because XLA computes bfloat16
in float32 on a CPU; in mixed_bfloat16 activations take about half. GB are 10^9 bytes.
"""

import collections
import contextlib
import itertools
import math
import os
import re
import sys

import tables

MODES = ("data_parallel", "model_parallel", "fully_sharded")
MOST = 1.15  # times the least bytes, with --check
_OPERATIONS = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
_LINE = re.compile(rf"= (.+?) ({_OPERATIONS})(-start)?\((.*)")
_SHAPE = re.compile(r"\b([a-z]+)(\d+)(?:e\w+)?\[([\d,]*)\]")


def parse(arguments=None):
    parser = tables.parser(__doc__)
    parser.add_argument("--variant", default="B/16", help="such as B/16, H/14, g/14")
    parser.add_argument("--depth", type=int, help="another number of blocks than the variant's")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--devices", type=int, default=8, help="chips, 2 or more")
    parser.add_argument("--batch", type=int, default=256, help="images of an update, all chips")
    parser.add_argument("--modes", nargs="+", default=MODES, choices=MODES)
    parser.add_argument("--model-devices", type=int, nargs="+", default=[2], metavar="N")
    parser.add_argument("--remat", nargs="+", default=["no", "yes"], choices=("no", "yes"))
    parser.add_argument("--ema", action="store_true", help="keep averaged weights")
    parser.add_argument("--hbm", type=float, help="GB of a chip; adds whether the update fits")
    parser.add_argument("--check", action="store_true", help=f"fail above {MOST} times the least")
    args = parser.parse_args(arguments)
    if args.devices < 2 or args.batch < args.devices or args.batch % args.devices:
        text = "--devices must be 2 or more and divide --batch. Received: "
        parser.error(f"{text}{args.devices} and --batch {args.batch}.")
    for n in args.model_devices:
        if n < 2 or args.devices % n:
            text = "--model-devices must be 2 or more and divide --devices. Received: "
            parser.error(f"{text}{n} of {args.devices}.")
    if args.hbm is not None and args.hbm <= 0:
        parser.error(f"--hbm must be a positive number of GB. Received: {args.hbm}.")
    return args


def make_model(args, remat, values=False):
    """A compiled model and its optimizer; without `values`, variables have shapes alone."""
    import keras

    import keras_vit

    optimizer = keras_vit.training.AdamW(1e-3, global_clipnorm=1.0, use_ema=args.ema)
    sizes = {"image_size": args.image_size, "num_classes": args.classes}
    sizes |= {"depth": args.depth} if args.depth else {}
    no_values = keras.StatelessScope(initialize_variables=False)
    with contextlib.nullcontext() if values else no_values:
        model = keras_vit.VisionTransformer(args.variant, **sizes, remat=remat)
        optimizer.build(model.trainable_variables)
    model.compile(optimizer, keras.losses.CategoricalCrossentropy(from_logits=True))
    return model


def compile_update(model, batch):
    """The program of one update of `model.fit`, and the sharding of each trained variable."""
    import jax
    import keras

    distribution = keras.distribution.distribution()

    trained = {v.path.replace("/", "_"): v for v in model.trainable_variables}

    def abstract(variable):
        """A slot of the optimizer lies as the variable that it is named after."""
        name = variable.path.split("/")[-1].rpartition("_")[0]
        owner = trained.get(name, variable)
        owner = owner if owner.shape == variable.shape else variable
        where = distribution.get_variable_layout(owner).backend_layout
        return jax.ShapeDtypeStruct(variable.shape, variable.dtype, sharding=where)

    groups = (model.trainable_variables, model.non_trainable_variables)
    groups += (model.optimizer.variables, model.metrics_variables)
    state = tuple([abstract(v) for v in group] for group in groups)
    data = []
    for shape in ((batch, *model.image_size, model.channels), (batch, model.num_classes)):
        where = distribution.get_data_layout(shape).backend_layout
        data.append(jax.ShapeDtypeStruct(shape, "float32", sharding=where))
    outputs = (None, tuple([each.sharding for each in group] for group in state))
    step = jax.jit(model.train_step, donate_argnums=0, out_shardings=outputs)
    program = step.lower(state, (*data, None)).compile()
    return program, [each.sharding for each in state[0]]


def measure(args, mode, shared, remat, batch):
    """What one chip holds and sends in an update, in bytes, as a dict."""
    from keras_vit import distribution

    options = {"model_devices": shared} if mode == "model_parallel" else {}
    with distribution.setup(mode, devices=args.devices, **options):
        model = make_model(args, remat)
        program, shardings = compile_update(model, batch)
    memory, sent = program.memory_analysis(), collectives(program.as_text())
    groups = args.devices // shared
    inputs = 4 * (math.prod(model.image_size) * model.channels + args.classes) * batch // groups
    operations = collections.Counter()
    for each in sent:
        operations[each["operation"]] += each["sent"]
    return {
        "state": memory.argument_size_in_bytes - inputs,
        "step": memory.temp_size_in_bytes + inputs,
        "sent": sum(each["sent"] for each in sent),
        "operations": operations,
        "least": least(args, model, shardings, mode, shared, remat, batch // groups),
    }


def collectives(text):
    """The collective operations of a program of XLA, as `compiled.as_text()` has it.

    Returns:
        A list of dicts: `"operation"`, `"bytes"` of the results on one chip, `"chips"` of a group,
        and `"sent"`, the bytes that each chip sends where the chips form a ring.
    """
    operations = []
    for line in text.splitlines():
        if match := _LINE.search(line):
            result, operation, starts, groups = match.groups()
            sizes = [
                math.prod(int(side) for side in shape.split(",") if side) * int(bits) / 8
                for _, bits, shape in _SHAPE.findall(result)
            ]
            # What an asynchronous operation begins with is (operands, results).
            total = sum(sizes) / (2 if starts and operation == "all-reduce" else 1)
            total = max(sizes) if starts and operation != "all-reduce" else total
            chips = group_size(groups)
            sent = _sent(operation, total, chips) if chips > 1 else 0
            operations.append(dict(operation=operation, bytes=total, chips=chips, sent=sent))
    return operations


def group_size(text):
    """How many chips take part in a collective operation, from the groups of its line."""
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


def _sent(operation, bytes, chips):
    """Bytes that each of the chips sends."""
    if operation == "all-reduce":
        return all_reduce(bytes, chips)
    if operation == "reduce-scatter":  # its results are the parts
        return all_gather(bytes * chips, chips)
    return bytes if operation == "collective-permute" else all_gather(bytes, chips)


def all_reduce(nbytes, chips):
    """Bytes that each chip sends to sum `nbytes` over all (Patarasu and Yuan, 2009)."""
    return 2 * (chips - 1) / chips * nbytes


def all_gather(nbytes, chips):
    """Bytes that each chip sends to make whole what was cut, or to sum it into parts."""
    return (chips - 1) / chips * nbytes


def least(args, model, shardings, mode, shared, remat, images):
    """The fewest bytes that a chip can send in an update in this layout.

    All gradients are summed once over the groups that have the same variables. Chips that share a
    model sum the tokens of a block six times, and a seventh time where it is computed again: twice
    in each direction (Shoeybi et al., 2019, section 3), and the gradients of query, key and value,
    which XLA sums one by one, twice more; the embedding is gathered, the logits are summed. What is
    fully sharded is gathered forwards and backwards, and its gradients are summed into parts; XLA
    gathers it once more where a block is computed again.
    """
    total = 0
    for variable, sharding in zip(model.trainable_variables, shardings):
        nbytes = 4 * math.prod(variable.shape)
        is_cut = any(axis is not None for axis in sharding.spec)
        if mode == "fully_sharded" and is_cut:
            total += 3 * all_gather(nbytes, args.devices)
        else:
            total += all_reduce(nbytes // (shared if is_cut else 1), args.devices // shared)
    if shared > 1:
        variant = model.variant
        tokens = math.prod(model.grid) + variant.learned_tokens
        nbytes = 4 * images * tokens * variant.width
        total += variant.depth * (7 if remat else 6) * all_reduce(nbytes, shared)
        total += all_gather(nbytes, shared) + all_reduce(4 * images * args.classes, shared)
    return total


def plan(args, say):
    """The lines of the table as dicts."""
    rows = []
    for mode in args.modes:
        shared_by = args.model_devices if mode == "model_parallel" else [1]
        for shared, remat in itertools.product(shared_by, args.remat):
            row = {"mode": mode, "model_devices": shared, "remat": remat == "yes"}
            row |= measure(args, mode, shared, row["remat"], args.batch)
            rows.append(row)
            gb = {name: f"{row[name] / 1e9:.4g} GB" for name in ("state", "step", "sent", "least")}
            say(f"{mode}, {shared} share a model, remat {remat}: {gb}")
    return rows


def markdown(rows, args):
    columns = ["layout", "remat", "state, GB", "step, GB", "together"]
    columns += ["fits"] if args.hbm else []
    columns += ["GB sent", "least in this layout", "ratio", "of it"]
    lines = []
    for row in rows:
        shared = f", {row['model_devices']} share a model" if row["model_devices"] > 1 else ""
        line = [row["mode"] + shared, "yes" if row["remat"] else "no"]
        total = row["state"] + row["step"]
        line += [f"{x / 1e9:.3g}" for x in (row["state"], row["step"], total)]
        line += ["yes" if total <= args.hbm * 1e9 else "no"] if args.hbm else []
        line += [f"{row[name] / 1e9:.4g}" for name in ("sent", "least")]
        operations = row["operations"].most_common()
        shares = ", ".join(f"{k} {100 * v / row['sent']:.0f}%" for k, v in operations if v)
        lines.append((*line, f"{row['sent'] / row['least']:.3f}", shares))
    title = f"### {args.variant} on {args.devices} chips: batch {args.batch}, {args.image_size} px"
    title += f", {args.depth} blocks" if args.depth else ""
    title += ", AdamW" + ", averaged weights" * args.ema
    title += f", chips of {args.hbm:g} GB" if args.hbm else ""
    return f"{title}, float32\n\n{tables.table(columns, lines)}"


def main():
    args = parse()
    os.environ["KERAS_BACKEND"] = "jax"
    # As many virtual devices; code that is never run need not be fast.
    flags = f"--xla_force_host_platform_device_count={args.devices}"
    os.environ["XLA_FLAGS"] = f"{flags} --xla_backend_optimization_level=0"
    try:
        rows = plan(args, lambda text: print(text, file=sys.stderr, flush=True))
    except ValueError as error:  # the library has no such model, or cannot cut it
        sys.exit(str(error))
    print(markdown(rows, args))
    if args.check and (over := [r for r in rows if r["sent"] > MOST * r["least"]]):
        sys.exit(f"{len(over)} of {len(rows)} layouts send more than {MOST} times the least.")


if __name__ == "__main__":
    main()
