"""`keras-vit export`: a file that other programs run."""

from keras_vit_cli.models import MODEL, READING, open_model, reading

HELP = "write a model as a file that other programs run"
EXAMPLE = "keras-vit export output model.onnx --preprocess --check"
FORMATS = "onnx, openvino, tf_saved_model, litert, torch or stablehlo"


def add_arguments(add):
    add("model", help=MODEL)
    add("output", help="the file, or the folder of a tf_saved_model")
    add("--format", help=f"{FORMATS} (default: by the suffix)")
    add("--preprocess", action="store_true", help="uint8 pixels in, probabilities out")
    add("--reading", type=reading, metavar="READING", help=READING)
    add("--check", action="store_true", help="run the file and compare it with the model")
    text = "images to compare, too; implies --check"
    add("--images", action="extend", nargs="+", metavar="IMAGE", help=text)


def run(args):
    import keras_vit
    from keras_vit.data import image_files

    model, check = open_model(args.model, args.reading), args.check or bool(args.images)
    options = {"check": check, "images": args.images and image_files(args.images)}
    print(keras_vit.export(model, args.output, args.format, args.preprocess, **options))
