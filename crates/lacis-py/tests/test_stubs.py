"""Stubs say what is: the same public functions, classes and arguments as the code beside them."""

import ast
import pathlib

import lacis
import pytest

FOLDER = pathlib.Path(lacis.__file__).parent
STUBS = [stub for stub in sorted(FOLDER.glob("*.pyi")) if stub.with_suffix(".py").exists()
         and stub.stem != "__init__"]


def described(path):
    """Public names, and the arguments of what can be called."""
    def walk(body, within=""):
        for node in body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield within + node.name, None
                yield from walk(node.body, f"{within}{node.name}.")
            public = isinstance(node, ast.FunctionDef) and (
                not node.name.startswith("_") or node.name in ("__init__", "__call__"))
            if public:
                given = node.args
                names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
                names += [a.arg for a in (given.vararg, given.kwarg) if a is not None]
                yield within + node.name, (names, len(given.defaults), len(given.kw_defaults))

    return dict(walk(ast.parse(path.read_text()).body))


def test_there_are_stubs():
    assert {"_graphs", "_train", "_model", "loader", "ops"} <= {stub.stem for stub in STUBS}
    assert (FOLDER / "py.typed").exists()


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: stub.stem)
def test_stubs_say_what_is(stub):
    assert described(stub) == described(stub.with_suffix(".py"))


def test_every_public_name_is_in_the_stub():
    text = (FOLDER / "__init__.pyi").read_text()
    for name in lacis.__all__:
        assert name in text
