"""The version of this library, for itself and for its package."""

__version__ = "0.1.0"
"""The version of this library, as a text."""
