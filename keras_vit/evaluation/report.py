"""What `evaluate` returns."""

import dataclasses

from keras_vit.evaluation.calibration import Calibration
from keras_vit.evaluation.confusion import ConfusionMatrix
from keras_vit.evaluation.real import RealAccuracy
from keras_vit.evaluation.result import Result, percent, table


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Report(Result):
    """How well a classifier does on labelled images. What was not asked for is None.

    Attributes:
        model: name of the model.
        backend: of Keras.
        examples: number of images.
        num_classes: number of classes.
        from_logits: whether the model's outputs were taken for logits.
        correct: k -> number of images whose class is among the k best, for the k asked for.
        loss: mean cross-entropy of the right class, in nats.
        calibration: a `Calibration`.
        confusion: a `ConfusionMatrix`.
        real: a `RealAccuracy`.
        skipped: number of images that the data could not read and left out.
        seconds: that all took, with the reading of the data and the compilation.
    """

    model: str
    backend: str
    examples: int
    num_classes: int
    from_logits: bool
    correct: dict
    loss: float | None = None
    calibration: Calibration | None = None
    confusion: ConfusionMatrix | None = None
    real: RealAccuracy | None = None
    skipped: int = 0
    seconds: float = 0.0

    def top(self, k):
        """Share of the images whose class is among the k best, or None if not asked for."""
        return self.correct[k] / self.examples if k in self.correct else None

    @property
    def top1(self):
        """Share of the images whose class is the best one: the accuracy."""
        return self.top(1)

    @property
    def top5(self):
        """Share of the images whose class is among the five best."""
        return self.top(5)

    def to_dict(self):
        results = {f"top{k}": self.top(k) for k in self.correct}
        if self.loss is not None:
            results["loss"] = self.loss
        for name in ("real", "calibration", "confusion"):
            if getattr(self, name) is not None:
                results[name] = getattr(self, name).to_dict()
        return {
            "model": self.model,
            "backend": self.backend,
            "examples": self.examples,
            "num_classes": self.num_classes,
            "from_logits": self.from_logits,
            "correct": {f"top{k}": count for k, count in self.correct.items()},
            **results,
            "skipped": self.skipped,
            "seconds": round(self.seconds, 3),
        }

    def __str__(self):
        rows = [
            (f"top-{k} accuracy", percent(self.top(k)), f"{count} of {self.examples}")
            for k, count in self.correct.items()
        ]
        if self.real is not None:
            counts = f"{self.real.correct} of {self.real.examples}"
            rows.append(("ReaL accuracy", percent(self.real.accuracy), counts))
        if self.loss is not None:
            rows.append(("loss", f"{self.loss:.4f}", "nats"))
        if self.calibration is not None:
            bins = f"{len(self.calibration.counts)} bins"
            error = percent(self.calibration.expected_error)
            rows.append(("expected calibration error", error, bins))
            rows.append(("Brier score", f"{self.calibration.brier:.4f}"))
        if self.confusion is not None:
            mean = percent(self.confusion.mean_per_class_accuracy)
            rows.append(("mean per-class accuracy", mean))
        title = f"{self.model} on {self.examples} images of {self.num_classes} classes"
        lines = [f"{title}, {self.backend}, {self.seconds:.1f} s", *[table(rows)] * bool(rows)]
        for right, taken, count in self.confusion.most_confused(3) if self.confusion else ():
            lines.append(f"{right} taken for {taken}: {count}")
        if self.skipped:
            lines.append(f"{self.skipped} images could not be read and do not count")
        return "\n".join(lines)

    __repr__ = __str__
