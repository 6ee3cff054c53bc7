"""The training of a job: what its model gets for that alone."""

import keras

from keras_vit import training
from keras_vit.data import units
from keras_vit.heads import check_one_head
from keras_vit.weights import from_checkpoint


class Learner:
    """What becomes of the model of a job while it trains: in units near 1, taught by a teacher."""

    def __init__(self, job, train):
        self.job, self.units = job, units.units_of(train)

    def data(self, pipeline):
        """A pipeline with its labels in the units of the training."""
        return units.in_units(pipeline, self.units)

    def turn_head(self, model):
        """The model, with its head in the units of the training."""
        units.turn_head(model, self.units, back=True)
        return model

    def finish(self, model):
        """The model to save: with its head in the units of the labels, and without LoRA."""
        finished = model if self.job.lora is None else training.merge_lora(model)
        units.turn_head(finished, self.units)
        return finished

    def compile(self, model):
        """The compiled model that `fit` trains: a `Distiller` around it, if there is a teacher."""
        if teacher := self.job.teacher:
            check_one_head(model, "Learning from a teacher")
            if str(teacher).endswith(".keras"):
                teacher = keras.saving.load_model(teacher, compile=False)
            else:
                teacher = from_checkpoint(teacher)
            model = training.Distiller(model, teacher)
        return self.job.recipe.compile(model)

    def tell_units(self):
        """Prints the units, if they are not those of the labels."""
        if self.units is not None:
            print(units.units_told(self.units))
