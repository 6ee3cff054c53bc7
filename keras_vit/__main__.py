"""The command line: `python -m keras_vit explore MODEL IMAGE ...` and `export MODEL FILE ...`."""

import argparse
import pathlib
import sys


def main(arguments=None):
    """Runs one command and returns the exit code; what is wrong with the input goes to stderr."""
    parser = argparse.ArgumentParser(
        prog="python -m keras_vit",
        epilog="The environment variable KERAS_BACKEND chooses jax, tensorflow or torch.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for run, help, add_arguments in (
        (_explore, "write a page that shows what a model attends to", _explore_arguments),
        (_export, "write a model as a file that other programs run", _export_arguments),
    ):
        command = commands.add_parser(run.__name__[1:], help=help)
        command.add_argument("model", help="a .keras file, or a checkpoint: name, path or URL")
        add_arguments(command.add_argument)
        command.set_defaults(run=run)
    args = parser.parse_args(arguments)
    try:
        args.run(args)
    except (ValueError, TypeError, ImportError, OSError, RuntimeError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def _explore_arguments(add):
    add("images", nargs="+", help="image files")
    add("--compare", metavar="MODEL", help="another model, to stand beside it")
    add("-o", "--output", default="report.html", help="the page (default: report.html)")
    add("--blocks", type=int, nargs="+", help="indices of the blocks to show (default: all)")
    add("--top", type=int, default=5, help="classes to tell (default: 5)")
    add("--megabytes", type=float, default=5.0, help="largest size for each image (default: 5)")


def _explore(args):
    from keras_vit import inspection

    model = _open(args.model)
    if args.compare:
        model = {args.model: model, args.compare: _open(args.compare)}
    options = {"blocks": args.blocks, "top": args.top, "megabytes": args.megabytes}
    path = inspection.explore(model, args.images, args.output, **options)
    print(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")


def _export_arguments(add):
    formats = "onnx, openvino, tf_saved_model, litert, torch or stablehlo"
    add("output", help="the file, or the folder of a tf_saved_model")
    add("--format", help=f"{formats} (default: by the suffix)")
    add("--preprocess", action="store_true", help="uint8 pixels in, probabilities out")
    add("--check", action="store_true", help="run the file and compare it with the model")
    add("--images", nargs="+", metavar="IMAGE", help="images to compare, too; implies --check")


def _export(args):
    from keras_vit.exports import export

    options = {"check": args.check or bool(args.images), "images": args.images}
    print(export(_open(args.model), args.output, args.format, args.preprocess, **options))


def _open(name):
    import keras

    from keras_vit.weights import from_checkpoint

    if not name.endswith(".keras"):
        return from_checkpoint(name)
    if not pathlib.Path(name).is_file():
        raise FileNotFoundError(f"There is no such model. Received: {name!r}")
    return keras.saving.load_model(name, compile=False)


if __name__ == "__main__":
    sys.exit(main())
