"""Rows as a table for people, or as CSV or JSON for programs."""

import argparse
import csv
import json
import sys


def add_forms(add, form=("csv", "json")):
    """Adds the options `--csv` and `--json`."""
    for name in form:
        add(f"--{name}", action="store_true", help=f"{name.upper()} instead of a table")


def print_rows(rows, columns, args, left=1):
    """Prints dicts with the keys `columns`; `None` is unknown."""
    if args.csv and args.json:
        raise argparse.ArgumentError(None, "give --csv or --json.")
    if args.json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
    elif args.csv:
        writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    else:
        from keras_vit.text import table

        cells = [["-" if row[name] is None else row[name] for name in columns] for row in rows]
        print(table(cells, columns, left))
