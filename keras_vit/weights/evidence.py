"""What a file does not say of its model: who says it, and whom a reader believes."""

# The sources, of which the first counts most.
ORDER = ("caller", "config", "catalogue", "arrays", "custom")
CALLER, CONFIG, CATALOGUE, ARRAYS, CUSTOM = ORDER
# What a load report says of a source; nothing of the arrays, which are no assumption.
REPORTED = {
    CALLER: "{} as given",
    CONFIG: "its config.json",
    CATALOGUE: "the catalogue",
    ARRAYS: "",
    CUSTOM: "the family's, as no config.json says it",
}
# What arrays only suggest, and a config may say otherwise.
SUGGESTED = ("pool", "layer_scale", "block", "rotary")


class Evidence(dict):
    """Arguments of a model by their names, each from the source that counts most.

    The sources are, in this order: the caller, the config beside the file, the catalogue, the
    arrays, and the custom of the family. Readers `add` what a source says, in any order, and look
    values up as in a dict. A reader that knows better sets a value: `evidence["pool"] = "mean"`.

    Args:
        caller: arguments of a caller, or of the model that takes the weights. They are wishes for
            the model; a reader adds one as from `CALLER` where the file leaves it open.

    Attributes:
        config: what the config beside the file says, by the keys of its library.
        assumed: argument -> what the load report says of its source.
    """

    def __init__(self, caller=()):
        self.caller, self.config = dict(caller), {}
        self.assumed, self._sources = {}, {}

    def add(self, source, why=None, **values):
        """Takes over what a source says, unless one before it in `ORDER` says it already.

        `why` is what the load report says instead of the usual; nothing where it is empty.
        """
        for field, value in values.items():
            if ORDER.index(source) <= ORDER.index(self.source_of(field)):
                self.settle(source, why, **{field: value})

    def settle(self, source, why=None, **values):
        """Takes over what a source says, whoever says otherwise."""
        for field, value in values.items():
            self[field], self._sources[field] = value, source
            self.assumed.pop(field, None)
            if text := REPORTED[source].format(field) if why is None else why:
                self.assumed[field] = text

    def source_of(self, field):
        """The source whose value of an argument counts; `CUSTOM` where nobody has named one."""
        return self._sources.get(field, CUSTOM)

    def from_config(self, field):
        """What the config says of an argument, or `None`."""
        return self[field] if self.source_of(field) == CONFIG else None

    def is_shown(self, field):
        """Whether the arrays show an argument, so that a config which contradicts it is wrong."""
        return self.source_of(field) == ARRAYS and field not in SUGGESTED

    def contradictions(self, fields):
        """Key of the config -> (value there, value that the arrays show), where they differ.

        `fields` is a dict from such keys to the arguments that they stand for.
        """
        return {
            key: (self.config[key], self[field])
            for key, field in fields.items()
            if self.is_shown(field) and not _same(self.config[key], self[field])
        }


def _same(stated, shown):
    """Whether a config says what arrays show, where two equal sides may be one number."""
    if isinstance(shown, tuple):
        stated = stated if isinstance(stated, list) else [stated] * len(shown)
        return stated == list(shown)
    return stated == shown
