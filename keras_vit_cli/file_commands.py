"""`keras-vit convert` and `export`: a model or a checkpoint as another file."""

import pathlib

from keras_vit_cli.arguments import FLAG, Settings, several
from keras_vit_cli.models import open_model

SUFFIXES = (".keras", ".npz", ".safetensors", "")
FORMATS = "onnx, openvino, tf_saved_model, litert, torch or stablehlo"


def add_convert(add):
    add("model")
    add("output", "the file (.keras, .npz, .safetensors), or a folder for huggingface")
    formats = ("keras", "google", "timm", "huggingface")
    add("--format", "default: by the suffix of the output", choices=formats)
    add("--set", "what the checkpoint does not say, or another image_size", action=Settings)
    add("--reading")
    add("--force", "replace what is there", **FLAG)
    text = "write what the readers of the format compute otherwise, too"
    add("--allow-differences", text, **FLAG)
    dtypes = ("float32", "float16", "bfloat16")
    add("--dtype", "round the weights to it (default: float32)", choices=dtypes)


def run_convert(args):
    """Write a model or a checkpoint in another format.

    keras-vit convert ViT-B_16.npz vit_b16.safetensors
    """
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
    taken = [path] if path.is_file() or (path.is_dir() and any(path.iterdir())) else []
    config = path.parent / "config.json"
    taken += [config] if path.suffix == ".safetensors" and config.exists() else []
    if taken and not args.force:
        raise FileExistsError(
            f"There is something. Received: {', '.join(map(str, taken))}; --force replaces it."
        )
    output_place(path, folder=args.format == "huggingface" or not (args.format or path.suffix))
    model = open_model(args.model, args.reading, **args.set)
    if report := getattr(model, "load_report", None):
        print(report)
    if format == "keras":
        if args.reading and not hasattr(type(model), "reading"):
            raise ValueError(
                "A .keras file does not keep how the outputs of a model of Keras's own class are "
                f"read. Received: --reading {args.reading} for {args.model!r}; leave it out, and "
                "give it to the commands that use the file."
            )
        if getattr(model, "loss", None) is not None and not getattr(model, "reading", None):
            # The loss alone tells. Keras opens none without an optimizer: this one has no slots,
            # and as a name it is that of the backend which opens the file.
            model.compile("sgd", loss=model.loss)
            model.get_compile_config = lambda: {"optimizer": "sgd", "loss": model.loss}
            print("The copy keeps the loss, not the optimizer: compile it anew before training.")
        save_whole(model, path)
    else:
        options = {"force": args.allow_differences, "dtype": args.dtype}
        keras_vit.save_weights(model, path, format, **options)
    reader = reader_of(model, format or BY_SUFFIX[path.suffix])
    print(f"{'class':<22} {visible(reader)}", f"{'written':<22} {visible(path)}", sep="\n")


def add_export(add):
    add("model")
    add("output", "the file, or the folder of a tf_saved_model")
    add("--format", f"{FORMATS} (default: by the suffix)")
    add("--preprocess", "uint8 pixels in, probabilities out", **FLAG)
    add("--reading")
    add("--check", "run the file and compare it with the model", **FLAG)
    add("--images", "images to compare, too; implies --check", **several(str, "IMAGE"))


def run_export(args):
    """Write a model as a file that other programs run.

    keras-vit export output model.onnx --preprocess --check
    """
    import keras_vit
    from keras_vit.data import image_files

    model, images = open_model(args.model, args.reading), args.images and image_files(args.images)
    options = {"preprocess": args.preprocess, "check": args.check, "images": images}
    print(keras_vit.export(model, args.output, args.format, **options))
