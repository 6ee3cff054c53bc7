"""`keras-vit export`: a file that other programs run."""

from keras_vit_cli.arguments import flag, several
from keras_vit_cli.models import open_model

HELP = "write a model as a file that other programs run"
EXAMPLE = "keras-vit export output model.onnx --preprocess --check"
FORMATS = "onnx, openvino, tf_saved_model, litert, torch or stablehlo"


def add_arguments(add):
    add("model")
    add("output", help="the file, or the folder of a tf_saved_model")
    add("--format", help=f"{FORMATS} (default: by the suffix)")
    add("--preprocess", **flag("uint8 pixels in, probabilities out"))
    add("--reading")
    add("--check", **flag("run the file and compare it with the model"))
    add("--images", help="images to compare, too; implies --check", **several(str, "IMAGE"))


def run(args):
    import keras_vit
    from keras_vit.data import image_files

    model, check = open_model(args.model, args.reading), args.check or bool(args.images)
    options = {"check": check, "images": args.images and image_files(args.images)}
    print(keras_vit.export(model, args.output, args.format, args.preprocess, **options))
