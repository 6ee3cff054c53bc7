"""`keras-vit convert`: a model or a checkpoint in another format."""

import pathlib

from keras_vit_cli.arguments import Settings, flag
from keras_vit_cli.models import open_model

HELP = "write a model or a checkpoint in another format"
EXAMPLE = "keras-vit convert ViT-B_16.npz vit_b16.safetensors"
SUFFIXES = (".keras", ".npz", ".safetensors", "")
FORMATS = ("keras", "google", "timm", "huggingface")
DTYPES = ("float32", "float16", "bfloat16")


def add_arguments(add):
    add("model")
    add("output", help="the file (.keras, .npz, .safetensors), or a folder for huggingface")
    add("--format", choices=FORMATS, help="default: by the suffix of the output")
    add("--set", action=Settings, help="what the checkpoint does not say, or another image_size")
    add("--reading")
    add("--force", **flag("replace what is there"))
    text = "write what the readers of the format compute otherwise, too"
    add("--allow-differences", **flag(text))
    add("--dtype", choices=DTYPES, help="round the weights to it (default: float32)")


def run(args):
    import keras_vit
    from keras_vit.text import visible
    from keras_vit.weights.save import BY_SUFFIX, reader_of
    from keras_vit.writing import output_place, save_whole

    path = pathlib.Path(args.output)
    if args.format is None and path.suffix not in SUFFIXES:
        raise ValueError(
            f"The format follows from the suffix, one of {', '.join(SUFFIXES[:-1])} or none for a "
            f"folder of huggingface, or from --format. Received: {args.output!r}"
        )
    format = args.format or ("keras" if path.suffix == ".keras" else None)
    if format == "keras" and path.suffix != ".keras":
        raise ValueError(f"A file of Keras ends in .keras. Received: {args.output!r}")
    if format == "keras" and args.dtype:
        raise ValueError("A .keras file keeps the precision of its model: leave --dtype out.")
    check_place(path, args.force)
    output_place(path, folder=args.format == "huggingface" or not (args.format or path.suffix))
    model = open_model(args.model, args.reading, **args.set)
    if report := getattr(model, "load_report", None):
        print(report)
    if format == "keras":
        save_whole(model, path)
    else:
        options = {"force": args.allow_differences, "dtype": args.dtype}
        keras_vit.save_weights(model, path, format, **options)
    reader = reader_of(model, format or BY_SUFFIX[path.suffix])
    print(f"{'class':<22} {visible(reader)}", f"{'written':<22} {visible(path)}", sep="\n")


def check_place(path, force):
    """Raises a FileExistsError where something would be replaced."""
    taken = [path] if path.is_file() or (path.is_dir() and any(path.iterdir())) else []
    config = path.parent / "config.json"
    taken += [config] if path.suffix == ".safetensors" and config.exists() else []
    if taken and not force:
        raise FileExistsError(
            f"There is something already. Received: {', '.join(map(str, taken))}; --force replaces "
            "it."
        )
