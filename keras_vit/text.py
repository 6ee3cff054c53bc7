"""Text for people: tables, shares in percent, and names that somebody may have meant."""

import difflib
import io


def table(rows, header=None, left=1):
    """Rows as aligned columns of plain text, drawn by rich.

    Args:
        rows: sequences of cells of one length.
        header: names of the columns, or `None` for no header.
        left: how many columns are aligned on the left; the others are aligned on the right.
    """
    from rich.console import Console
    from rich.table import Table

    rows = [[str(cell) for cell in row] for row in rows]
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=header is not None)
    for i, name in enumerate(header or rows[0]):
        drawn.add_column(name, justify="left" if i < left else "right", no_wrap=True)
    for row in rows:
        drawn.add_row(*row)
    console = Console(file=io.StringIO(), width=10_000, markup=False, highlight=False, emoji=False)
    console.print(drawn)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def percent(share):
    """A share from 0 to 1 as text, with two decimals."""
    return f"{100 * share:.2f} %"


def nearest(word, known, count=3):
    """The known names most like `word`, best first; the first ones where none is like it."""
    lowered = {str(name).lower(): name for name in known}
    close = difflib.get_close_matches(str(word).lower(), lowered, n=count, cutoff=0.4)
    return [lowered[name] for name in close] or list(known)[:count]


def unknown(kind, word, known, argument=None, listed=None):
    """The ValueError for a name that does not exist, with the nearest names and all of them.

    Args:
        kind: what the name should be of, such as `"VTAB task"`.
        word: what was received.
        known: the names that exist.
        argument: the argument that received it; `None` for the last word of `kind`.
        listed: the call that prints all names, if they are too many for a message.
    """
    all_names = f"{listed} prints all" if listed else f"all are {list(known)}"
    return ValueError(
        f"Unknown {kind}. Received: {argument or kind.split()[-1]}={word!r}; the nearest are "
        f"{nearest(word, known)}, and {all_names}."
    )
