"""The Python in a page of documentation."""

import ast
import functools
import inspect
import re

import keras_vit

PACKAGES = ("data", "evaluation", "recipes", "training", "weights")


def snippets(page):
    """The Python blocks of a page, in order."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def mistakes(code):
    """What a snippet uses of the library that is not there: names, and arguments of calls."""
    found = []
    for node in ast.walk(ast.parse(code)):
        try:
            if isinstance(node, ast.Attribute):
                _resolve(node)
            elif isinstance(node, ast.Call):
                _check_call(node)
        except (AttributeError, TypeError) as error:
            found.append(f"{ast.unparse(node)}: {error}")
    return found


def _check_call(node):
    called = _resolve(node.func)
    if called is None or any(isinstance(a, ast.Starred) for a in node.args):
        return
    given = {keyword.arg: None for keyword in node.keywords if keyword.arg}
    bind = inspect.signature(called).bind_partial  # **options may hold what is missing
    if all(keyword.arg for keyword in node.keywords):
        bind = inspect.signature(called).bind
    bind(*node.args, **given)


def _resolve(node):
    """The object of the library that a dotted name stands for, or None if it is not one of ours."""
    names = ast.unparse(node).split(".")
    if not all(name.isidentifier() for name in names):
        return None
    root = {"keras_vit": keras_vit, "recipe": keras_vit.recipes.Recipe}
    root |= {name: getattr(keras_vit, name) for name in PACKAGES}
    if names[0] not in root:
        return None
    if names[0] == "recipe" and len(names) > 1:
        fields = inspect.signature(keras_vit.recipes.Recipe).parameters
        if names[1] in fields:
            return None
        method = getattr(keras_vit.recipes.Recipe, names[1])
        if isinstance(method, property) or len(names) > 2:
            return None
        return functools.partial(method, None) if names[1] != "from_dict" else method
    found = functools.reduce(getattr, names[1:], root[names[0]])
    return found if callable(found) and len(names) > 1 else None
