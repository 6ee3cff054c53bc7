"""How good a model is: accuracy and calibration, few-shot, neighbours, probes, VTAB.

Everything takes any Keras model, or features of any origin, reads its data once and batch by
batch, and returns a value that prints as a table and saves as JSON.
Importing this package loads Keras and NumPy only.
"""

from keras_vit.evaluation.benchmarks import (
    VTAB_GROUPS,
    RealAccuracy,
    VTABScore,
    real_accuracy,
    vtab_mean,
)
from keras_vit.evaluation.confusion import ConfusionMatrix, confusion_matrix
from keras_vit.evaluation.evaluate import HeadReports, evaluate
from keras_vit.evaluation.features import embed, extract_features, features, save_features
from keras_vit.evaluation.fewshot import FewShot, LeastSquares, fewshot, least_squares, pick_shots
from keras_vit.evaluation.metrics import Calibration, calibration, fit_temperature
from keras_vit.evaluation.probes import LinearProbe, NearestNeighbours, knn, linear_probe, probe
from keras_vit.evaluation.reports import MultiLabelReport, RegressionReport, Report

__all__ = ["VTAB_GROUPS", "RealAccuracy", "VTABScore", "real_accuracy", "vtab_mean"]
__all__ += ["HeadReports", "MultiLabelReport", "RegressionReport", "Report", "evaluate"]
__all__ += ["ConfusionMatrix", "confusion_matrix"]
__all__ += ["embed", "extract_features", "features", "save_features"]
__all__ += ["FewShot", "LeastSquares", "fewshot", "least_squares", "pick_shots"]
__all__ += ["Calibration", "calibration", "fit_temperature"]
__all__ += ["LinearProbe", "NearestNeighbours", "knn", "linear_probe", "probe"]
