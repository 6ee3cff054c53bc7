"""The command line: `python -m keras_vit explore MODEL IMAGE ... -o report.html`."""

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
    command = commands.add_parser("explore", help="write a page that shows what a model attends to")
    add = command.add_argument
    add("model", help="a .keras file, or a checkpoint: a name, a path or a URL")
    add("images", nargs="+", help="image files")
    add("--compare", metavar="MODEL", help="another model, to stand beside it")
    add("-o", "--output", default="report.html", help="the page (default: report.html)")
    add("--blocks", type=int, nargs="+", help="indices of the blocks to show (default: all)")
    add("--top", type=int, default=5, help="classes to tell (default: 5)")
    add("--megabytes", type=float, default=5.0, help="largest size for each image (default: 5)")
    args = parser.parse_args(arguments)
    options = {"blocks": args.blocks, "top": args.top, "megabytes": args.megabytes}
    try:
        from keras_vit import inspection

        model = _open(args.model)
        if args.compare:
            model = {args.model: model, args.compare: _open(args.compare)}
        path = inspection.explore(model, args.images, args.output, **options)
    except (ValueError, ImportError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")
    return 0


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
