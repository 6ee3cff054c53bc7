"""The metrics of an evaluation that is made in parts. Those of Keras are sums, which are added."""

import itertools

from keras_vit.distribution.copying import to_numpy


def evaluate_part(model, batches, **options):
    """The sums of the metrics over the batches of an iterator; [] where it has none."""
    first = next(batches, None)
    if first is None:
        return []
    # Keras takes a generator, and no other iterator.
    model.evaluate((batch for batch in itertools.chain([first], batches)), **options)
    return [to_numpy(variable) for variable in model.metrics_variables]


def metrics_of(model, sums):
    """The metrics of all parts as a dict, by the sums of each; the model has them then, too."""
    for variable, *of_parts in zip(model.metrics_variables, *filter(None, sums)):
        variable.assign(sum(of_parts))
    return {name: float(value) for name, value in model.get_metrics_result().items()}
