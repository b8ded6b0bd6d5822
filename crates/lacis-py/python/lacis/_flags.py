"""Keyword arguments as flags of the command."""

import os


def flags_of(function, arguments):
    """``weight_decay=5e-4`` as ``--weight-decay=0.0005``; what is None or False is not a flag."""
    return [flag for name, value in arguments.items() for flag in _flag(function, name, value)]


def _flag(function, name, value):
    name = "--" + name.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return []
    if value is True:
        return [name]
    if isinstance(value, (list, tuple)):
        return [f"{name}={','.join(map(str, value))}"]
    if isinstance(value, os.PathLike):
        return [f"{name}={os.fspath(value)}"]
    if isinstance(value, (str, int, float)) or hasattr(value, "item"):
        return [f"{name}={value.item() if hasattr(value, 'item') else value}"]
    raise TypeError(f"{function}() cannot take {type(value).__name__} for {name[2:]}")
