"""What a family of checkpoints says in its config.json, and whether that is of the same model."""

import dataclasses

from keras_vit.weights.model_arguments import CONFIG, UNREPORTED
from keras_vit.weights.safety import of_other_model, unsupported


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigKeys:
    """What a family says in the config.json beside its arrays."""

    # Key -> argument, or (argument, dict from its values to those here). What arrays show is
    # compared; for the argument `None` the value is only checked.
    config: dict = dataclasses.field(default_factory=dict)
    # Key -> an array that is there just where its value is true: its canonical name or that in the
    # file.
    arrays_by_key: dict = dataclasses.field(default_factory=dict)
    # What a config calls the models whose arrays have these names, where it says so.
    model_types: tuple = ()
    # Whether a config that contradicts the arrays is an error; if not, it is of another model and
    # not read.
    needs_config: bool = False

    def settings(self):
        """The rows of `config` as (key, argument, meanings or `None`)."""
        rows = self.config.items()
        return [(key, *row) if isinstance(row, tuple) else (key, row, None) for key, row in rows]

    def flat_config(self, contents):
        """The config.json beside the arrays as one dict."""
        return contents.config

    def config_of_model(self, contents, arguments):
        """The config.json beside the arrays as one dict, empty if it is of another model."""
        config = self.flat_config(contents)
        fields = {key: field for key, field, _ in self.settings() if key in config}
        wrong = [key for key, field in fields.items() if arguments.contradicts(field, config[key])]
        wrong = {key: (config[key], arguments[fields[key]]) for key in wrong}
        if wrong and self.needs_config:
            raise of_other_model(config, f"(config, file) differ in {wrong}")
        is_of_model = self.needs_config or (fields and not wrong)
        return config if is_of_model else {}

    def add_config(self, arguments):
        """Adds what the config of the model says of its arguments."""
        config = arguments.config
        for key, field, meanings in self.settings():
            if key not in config:
                continue
            value = config[key]
            if meanings is not None:
                if value is None and None not in meanings:
                    continue
                if not isinstance(value, (str, bool, type(None))) or value not in meanings:
                    what = f"been built with {key}={value!r} (its config)"
                    raise unsupported(what, f"; expected one of {list(meanings)}")
                value = meanings[value]
            # Attention pooling and a LayerScale show in the arrays, whatever a config says.
            is_map = field == "pool" and arguments["pool"] in ("map", "probe")
            lacks_scale = field == "layer_scale" and not (value and arguments["layer_scale"])
            if not (field is None or arguments.is_shown(field) or is_map or lacks_scale):
                why = UNREPORTED if field == "layer_scale" else None
                arguments.add(CONFIG, why, **{field: value})

    def check_arrays(self, names_in_file, config):
        """Raises a CheckpointError where the arrays are not those of the model of a config.

        Sizes may be equal in models of several classes, which compute other things: a config is
        believed only where each array has a use in its model, and none is missing there.
        """
        texts = []
        for key, array in self.arrays_by_key.items():
            names = [name for path, name in names_in_file.items() if array in (path, name)]
            if key in config and bool(config[key]) != bool(names):
                has = repr(names[0]) if names else f"no {array!r}"
                texts.append(f"it says {key}={config[key]!r:.200}, and the file has {has}")
        if texts:
            raise of_other_model(config, "; ".join(texts[:4]))
