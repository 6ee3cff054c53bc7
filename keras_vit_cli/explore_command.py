"""`keras-vit explore`: a page that shows what a model attends to."""

from keras_vit_cli.models import MODEL, list_files, open_model

HELP = "write a page that shows what a model attends to"
EXAMPLE = "keras-vit explore output cat.jpg dog.jpg -o report.html"


def add_arguments(add):
    add("model", help=MODEL)
    add("images", nargs="+", help="image files, and folders of them at any depth")
    add("--compare", metavar="MODEL", help="another model, to stand beside it")
    add("-o", "--output", default="report.html", help="the page (default: report.html)")
    add("--blocks", type=int, nargs="+", help="indices of the blocks to show (default: all)")
    add("--top", type=int, default=5, help="classes to tell (default: 5)")
    add("--megabytes", type=float, default=5.0, help="largest size for each image (default: 5)")


def run(args):
    from keras_vit import inspection

    model = open_model(args.model)
    if args.compare:
        model = {args.model: model, args.compare: open_model(args.compare)}
    options = {"blocks": args.blocks, "top": args.top, "megabytes": args.megabytes}
    path = inspection.explore(model, list_files(args.images), args.output, **options)
    print(f"{path} ({path.stat().st_size / 1e6:.2f} MB)")
