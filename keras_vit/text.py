"""Text for people: tables, shares in percent, and names that somebody may have meant.

Names of files and of classes are anybody's text. `visible` makes them fit for a terminal,
`markdown` for a card, `csv_cell` for a table that a spreadsheet opens, and `brief` for an error.
"""

import difflib
import html
import io
import re
import unicodedata

_JOINERS = "\u200c\u200d"  # which change how the letters beside them look, as in Persian and emoji


def visible(text, keep=""):
    """Text with escapes for what a terminal obeys instead of showing it, and for broken UTF-8.

    So a bell becomes `\\x07`, a mark that turns the direction of writing `\\u202e`, and the byte of
    a file name that is no UTF-8 `\\xe9`. Characters of `keep` stay: `"\\n"` for several lines.
    """

    def shown(character):
        if "\udc80" <= character <= "\udcff":  # how Python keeps a byte of a file name
            return f"\\x{ord(character) - 0xDC00:x}"
        obeyed = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        if obeyed and character not in _JOINERS + keep:
            return character.encode("unicode_escape").decode()
        return character

    text = str(text)
    return text if text.isascii() and text.isprintable() else "".join(map(shown, text))


def markdown(text):
    """Text of one line that Markdown shows as it is: no HTML, link, emphasis or end of a cell."""
    text = html.escape(visible(" ".join(str(text).split())), quote=False)
    text = re.sub(r"([\\`*\[\]|~]|(?<!\w)_|_(?!\w))", r"\\\1", text)
    return text.replace("://", "\\://")


def code(text):
    """Text of one line as code in Markdown, or as plain text where it would end the code."""
    shown = visible(text)
    return markdown(text) if {*"`<"} & {*shown} else f"`{shown}`"


def csv_cell(value):
    """A value for CSV: text that a spreadsheet would compute gets an apostrophe before it."""
    if not isinstance(value, str):
        return value
    first = unicodedata.normalize("NFKC", value.lstrip()[:1])  # those of full width count, too
    computed = value[:1] in [*"\t\r\n"] or first in [*"=+-@"]
    try:
        float(value)
    except ValueError:
        return f"'{visible(value)}" if computed else visible(value)
    return value


def abridged(text, longest=4000):
    """A text, without its middle where it is longer."""
    left_out, half = len(text) - longest, longest // 2
    middle = f"{text[:half]} [... {left_out} characters are left out ...] {text[-half:]}"
    return middle if left_out > 0 else text


def shortened(names, limit=12):
    """A list of names as text, cut where it would fill the screen."""
    names = [f"{n[:200]}..." if isinstance(n, str) and len(n) > 200 else n for n in names]
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"{names[:limit]}{more}"


def brief(value):
    """The `repr` of a value for an error, without its middle where it is long."""
    return abridged(repr(value), 300)


def table(rows, header=None, left=1):
    """Rows, sequences of cells of one length, as columns of plain text as of `visible`.

    `left` is how many columns are aligned on the left; the others are aligned on the right.
    """
    from rich.console import Console
    from rich.table import Table

    rows = [[visible(cell) for cell in row] for row in rows]
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=header is not None)
    for i, name in enumerate(header or rows[0]):
        drawn.add_column(name, justify="left" if i < left else "right", no_wrap=True)
    for row in rows:
        drawn.add_row(*row)
    console = Console(file=io.StringIO(), width=10_000, markup=False, highlight=False, emoji=False)
    console.print(drawn)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def follow(steps, name, total=None, progress=None):
    """Yields each of `steps`, and shows a person on stderr how many are done.

    With `progress=None` that is shown on a terminal or in a notebook.
    """
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    if progress is None:
        progress = console.is_terminal or console.is_jupyter
    transient = console.is_terminal  # elsewhere it would never be seen
    return track(steps, name, total, console=console, transient=transient, disable=not progress)


def percent(share):
    """A share from 0 to 1 as text, with two decimals."""
    return f"{100 * share:.2f} %"


def nearest(word, known, count=3):
    """The known names most like `word`, best first; the first ones where none is like it."""
    lowered = {str(name).lower(): name for name in known}
    close = difflib.get_close_matches(str(word).lower(), lowered, n=count, cutoff=0.4)
    return [lowered[name] for name in close] or list(known)[:count]


def unknown(noun, word, known, argument=None, listed=None):
    """The ValueError for a word that is none of the known names, with the nearest and all of them.

    Args:
        noun: what the name should be of, such as `"VTAB task"`.
        argument: the argument that received it; `None` for the last word of `noun`.
        listed: the call that prints all names, if they are too many for a message.
    """
    all_names = f"{listed} prints all" if listed else f"all are {list(known)}"
    return ValueError(
        f"Unknown {noun}. Received: {argument or noun.split()[-1]}={brief(word)}; the nearest are "
        f"{nearest(word, known)}, and {all_names}."
    )
