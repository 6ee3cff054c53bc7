"""How good a model is: accuracy and calibration, few-shot, neighbours, probes, VTAB.

Everything takes any Keras model, or features of any origin, reads its data once and batch by
batch, and returns a value that prints as a table and saves as JSON.
Importing this package loads Keras and NumPy only.
"""

from keras_vit.evaluation.calibration import Calibration, calibration, fit_temperature
from keras_vit.evaluation.confusion import ConfusionMatrix, confusion_matrix
from keras_vit.evaluation.evaluate import Report, evaluate
from keras_vit.evaluation.features import extract_features, features
from keras_vit.evaluation.fewshot import (
    FewShot,
    LeastSquares,
    fewshot,
    least_squares,
    pick_shots,
)
from keras_vit.evaluation.probes import LinearProbe, NearestNeighbours, knn, linear_probe
from keras_vit.evaluation.real import RealAccuracy, load_real, real_accuracy
from keras_vit.evaluation.vtab import VTAB_GROUPS, VTABScore, vtab_mean

__all__ = [
    "VTAB_GROUPS",
    "Calibration",
    "ConfusionMatrix",
    "FewShot",
    "LeastSquares",
    "LinearProbe",
    "NearestNeighbours",
    "RealAccuracy",
    "Report",
    "VTABScore",
    "calibration",
    "confusion_matrix",
    "evaluate",
    "extract_features",
    "features",
    "fewshot",
    "fit_temperature",
    "knn",
    "least_squares",
    "linear_probe",
    "load_real",
    "pick_shots",
    "real_accuracy",
    "vtab_mean",
]
