"""Exported models: files that run without this library."""

from keras_vit.exports.exporter import Export, export
from keras_vit.exports.formats import FORMATS
from keras_vit.exports.graph import ExportError
from keras_vit.exports.quantize import quantize

__all__ = ["FORMATS", "Export", "ExportError", "export", "quantize"]
