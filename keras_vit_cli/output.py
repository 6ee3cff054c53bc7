"""Rows as a table for people, or as CSV or JSON for programs."""

import csv
import json
import sys


def print_json(content, **options):
    """Prints JSON that any terminal shows and any program reads.

    A byte of a name that is no UTF-8 is an escape from `\\udc80` to `\\udcff`, as Python reads it.
    """
    from keras_vit.text import visible

    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "")
    ascii_only = not encoding.startswith("utf")
    text = json.dumps(content, indent=1, ensure_ascii=ascii_only, **options)
    escapes = {c: json.dumps(c)[1:-1] for c in {*text} - {"\n"} if visible(c) != c}
    escapes["\x7f"] = "\\u007f"  # which JSON leaves as it is
    print(text.translate(str.maketrans(escapes)))


def unreadable(count, total):
    """The exit code after `count` of `total` images could not be read, which stderr tells."""
    if count:
        print(f"error: {count} of {total} images could not be read", file=sys.stderr)
    return 1 if count else 0


def print_rows(rows, columns, args, left=1):
    """Prints dicts with the keys `columns`; `None` is unknown."""
    if args.csv and args.json:
        args.refuse("give --csv or --json.")
    if args.json:
        print_json(rows)
    elif args.csv:
        from keras_vit.text import csv_cell

        writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: csv_cell(row[name]) for name in columns} for row in rows)
    else:
        from keras_vit.text import table

        cells = [["-" if row[name] is None else row[name] for name in columns] for row in rows]
        print(table(cells, columns, left))
