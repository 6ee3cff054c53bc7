"""`keras-vit embed`: the features of images, in a file."""

from keras_vit_cli.models import IMAGES, MODEL, images_of, open_model
from keras_vit_cli.numbers import count
from keras_vit_cli.output import unreadable

HELP = "write the features that a model makes of images, with their paths"
EXAMPLE = "keras-vit embed facebook/dinov2-small photos/ -o features.npz"


def add_arguments(add):
    add("model", help=MODEL)
    add("images", nargs="*", help=IMAGES)
    text = "the file: .npz with the arrays paths and features, or .csv"
    add("-o", "--output", default="features.npz", help=text)
    add("--normalize", action="store_true", help="vectors of length 1, as CLIP compares them")
    add("--layer", metavar="NAME", help="layer to take (default: what the head reads)")
    add("--batch-size", type=count, default=32, help="images at once")


def run(args):
    from keras_vit import evaluation
    from keras_vit.data import image_files
    from keras_vit.evaluation.features import output_of_features
    from keras_vit.text import visible

    output_of_features(args.output)
    files, model = image_files(args.images or images_of(args.model)), open_model(args.model)
    vectors = evaluation.embed(
        model, files, args.normalize, args.layer, args.batch_size, skip_corrupt=True, progress=None
    )
    broken = evaluation.save_features(args.output, files, vectors)
    shape = f"{len(files) - broken} images, {vectors.shape[1]} numbers each"
    print(f"{visible(args.output)}: {shape}")
    return unreadable(broken, len(files))
