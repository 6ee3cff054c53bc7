"""The formats of other libraries, a file for each publisher; nothing here is public."""

__all__: list[str] = []
