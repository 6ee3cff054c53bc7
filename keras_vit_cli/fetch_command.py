"""`keras-vit fetch`: published weights into the cache."""

import sys

HELP = "download published weights into the cache, so that they open offline later"
EXAMPLE = "keras-vit fetch deit_tiny_patch16_224.fb_in1k"


def add_arguments(add):
    add("names", nargs="+", metavar="NAME", help="names that `keras-vit list` prints, or URLs")


def run(args):
    from keras_vit.weights import catalog, fetch

    places = [_address(name, catalog) for name in args.names]  # a mistake shows before a download
    for address, size in places:
        print(fetch(address, size=size))
        if address.startswith("package://"):
            print(f"{address} comes with keras3-vit; nothing is downloaded", file=sys.stderr)


def _address(name, catalog):
    """The URL of a checkpoint, and its size in bytes or `None`."""
    records = catalog.lookup(name)
    if len(records) != 1 and "://" in name:
        return name, None
    record = catalog.find(name)
    return record.url, record.size
