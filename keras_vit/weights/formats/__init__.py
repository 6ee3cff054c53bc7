"""The formats of other libraries, a file for each publisher; `keras_vit.weights` has what is public."""

__all__: list[str] = []
