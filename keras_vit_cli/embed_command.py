"""`keras-vit embed`: the features of images, in a file."""

from keras_vit_cli.arguments import flag
from keras_vit_cli.models import files_of, open_model
from keras_vit_cli.output import unreadable

HELP = "write the features that a model makes of images, with their paths"
EXAMPLE = "keras-vit embed facebook/dinov2-small photos/ -o features.npz"


def add_arguments(add):
    add("model")
    add("images")
    text = "the file: .npz with the arrays paths and features, or .csv"
    add("-o", "--output", default="features.npz", help=text)
    add("--normalize", **flag("vectors of length 1, as CLIP compares them"))
    add("--layer")
    add("--batch-size")


def run(args):
    from keras_vit import evaluation
    from keras_vit.evaluation.features import output_of_features
    from keras_vit.text import visible

    output_of_features(args.output)
    files, model = files_of(args), open_model(args.model)
    vectors = evaluation.embed(
        model, files, args.normalize, args.layer, args.batch_size, skip_corrupt=True, progress=None
    )
    broken = evaluation.save_features(args.output, files, vectors)
    shape = f"{len(files) - broken} images, {vectors.shape[1]} numbers each"
    print(f"{visible(args.output)}: {shape}")
    return unreadable(broken, len(files))
