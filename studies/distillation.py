"""Does a teacher help a small ViT where labels are few? (DeiT, Touvron et al., 2021, Table 3)

A small BiT ResNet learns from 2,000 images of Fashion-MNIST and becomes the teacher; a ViT learns
from the same images alone, and with the teacher in three ways. In the last arm the teacher is
another ViT that learned alone. DeiT's signs, which stand for the paper's here: a convolutional
teacher helps, hard labels with a distillation token the most, soft labels not.

It does not show a teacher that knows more than the labels of the student's own images: this one
has seen nothing else.
"""

import keras

from keras_vit import training
from studies.lab import MODELS, RECIPE, Finding, accuracy, build, dots, learn
from studies.rates import chosen

PAPER = (
    "81.8 % alone and with soft labels, 83.0 % with hard ones, 83.4 % with the token (DeiT-B on "
    "ImageNet, Table 3)."
)
COUNT, ALONE = 2000, "alone"
HARD = {"hard": True, "alpha": 0.5}
ARMS = {  # arguments of the Distiller; Table 3 has alpha 0.1 and temperature 3 for soft labels
    ALONE: {},
    "soft labels": {"teacher": "BiT s", "hard": False, "alpha": 0.1, "temperature": 3.0},
    "hard labels": {"teacher": "BiT s", **HARD},
    "hard labels, token": {"teacher": "BiT s", "token": True, **HARD},
    "hard labels, token, ViT teacher": {"teacher": "ViT m", "token": True, **HARD},
}
ARMS = {arm: {**arguments, "rate": (1e-3, 3e-3, 1e-2)} for arm, arguments in ARMS.items()}


def run(lab, seed, rate, teacher=None, token=False, **options):
    train, held_out, test = (
        lab.part(p, seed=seed).padded(2) for p in ("train", "held_out", "test")
    )
    few = train.draw(COUNT, seed)

    def taught(name):
        return learn(
            build(32, 10, seed, **MODELS[name]),
            few,
            lab.steps(600),
            chosen(name, lab)["rate"],
            seed,
        )

    student = learner = build(32, 10, seed, **MODELS["ViT m"], distillation=token)
    found = {}
    if teacher:
        model = lab.once(f"teacher {teacher} {seed}", lambda: taught(teacher))
        keras.utils.set_random_seed(seed)
        learner = training.Distiller(student, model, **options)
    learn(learner, few, lab.steps(600), rate, seed, label_smoothing=0.1)
    if teacher:
        found["teacher"] = accuracy(RECIPE.compile(model), test)
    RECIPE.compile(student)
    return {"held_out": accuracy(student, held_out), "test": accuracy(student, test), **found}


def findings(results):
    gain = lambda arm: results[arm, "test"] - results[ALONE, "test"]  # noqa: E731
    best = "hard labels, token"
    return [
        Finding(f"{best} - alone", gain(best), "above"),
        Finding("soft labels - alone", gain("soft labels"), "tie"),
        Finding("hard labels - alone", gain("hard labels"), "above"),
        Finding(
            "BiT as the teacher - ViT as the teacher",
            gain(best) - gain(f"{best}, ViT teacher"),
            "above",
        ),
        Finding("teacher - ViT alone", results[best, "teacher"] - results[ALONE, "test"]),
    ]


def figure(results, figure):
    axes = figure.subplots()
    dots(axes, [arm.replace(", ", ",\n") for arm in ARMS], [results[arm, "test"] for arm in ARMS],
         linestyle="none")  # fmt: skip
    axes.set(ylabel="test accuracy, %")
