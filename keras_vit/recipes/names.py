"""Names that a user may write, and the nearest ones where there is no such name."""

import difflib


def nearest(word, known, count=3):
    """The known names most like `word`, best first; some of them where none is like it."""
    lowered = {str(name).lower(): name for name in known}
    close = difflib.get_close_matches(str(word).lower(), lowered, n=count, cutoff=0.4)
    return [lowered[name] for name in close] or list(known)[:count]


def unknown(kind, word, known):
    """The ValueError for a name that does not exist, with the nearest and all that do."""
    return ValueError(
        f"Unknown {kind}. Received: {kind}={word!r}; the nearest are {nearest(word, known)}, and "
        f"all are {list(known)}."
    )
