"""What became of a checkpoint, as a value that prints as a short table."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """What became of a checkpoint: every variable and every array of it is accounted for.

    Attributes:
        loaded: canonical names of the variables that took their value from the file.
        initial: variables left at their initial value: a fresh head, if anything.
        ignored: arrays of the file that the model has no use for: its head, a text tower.
        resized: (variable, shape in the file, shape in the model, method) for each that was.
        head: what became of the head, in words.
        assumed: (argument, value, where it is from) for what the arrays do not say.
        differs: (argument, value in the file's family, value in the model) where the model
            computes something else than the file was trained with.
        family: whose format the file has.
        path: the file or folder.
    """

    loaded: tuple[str, ...]
    initial: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    resized: tuple[tuple, ...] = ()
    head: str = ""
    assumed: tuple[tuple, ...] = ()
    differs: tuple[tuple, ...] = ()
    family: str = ""
    path: str = ""

    def __str__(self):
        rows = [("checkpoint", f"{self.path} ({self.family})")]
        rows += [("loaded", f"{len(self.loaded)} variables")]
        rows += [
            ("resized", f"{name} {old} -> {new}, {method}")
            for name, old, new, method in self.resized
        ]
        rows += [("head", self.head)] * bool(self.head)
        rows += [("left at initial value", _names(self.initial))] * bool(self.initial)
        rows += [("ignored", _names(self.ignored))] * bool(self.ignored)
        rows += [("assumed", f"{what}={value!r}: {why}") for what, value, why in self.assumed]
        rows += [
            ("differs", f"{what}: {theirs!r} in the checkpoint, {ours!r} in the model")
            for what, theirs, ours in self.differs
        ]
        return "\n".join(f"{what:<22} {which}" for what, which in rows)


def _names(names, limit=6):
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
