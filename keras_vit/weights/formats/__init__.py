"""The formats of other libraries, a file for each publisher."""

__all__: list[str] = []
