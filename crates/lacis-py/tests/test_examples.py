"""The examples run, each as a user would run it; the README's Python lines work when pasted."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent.parent
EXAMPLES = sorted((HERE / "examples").glob("*.py"))
NEED_TORCH = "torch_geometric"


def run(*arguments, cwd):
    start = time.perf_counter()
    command = [sys.executable, "-W", "ignore", *map(str, arguments)]
    environment = dict(os.environ)
    if importlib.util.find_spec("lightning") is None:
        paths = [str(HERE / "tests" / "stand_in"), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=cwd,
                             env=environment)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return outcome.stdout, time.perf_counter() - start


def test_there_are_examples():
    assert len(EXAMPLES) >= 7


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(example, tmp_path):
    if example.stem != "native_numpy":
        pytest.importorskip(NEED_TORCH)
    said, seconds = run(example, cwd=tmp_path)
    assert said.strip()
    if said.startswith("skipped"):
        pytest.skip(said.strip())
    if example.stem == "two_lines":
        assert seconds < 60
        assert "largest difference" in said and said.count("ms an epoch") == 2
    if example.stem == "lightning_loop":
        assert re.search(r"GCNConv +10 +0", said), said
    if example.stem == "torch_compile":
        patched, plain = (float(number) for number in re.findall(r"([\d.]+) ms a step", said))
        # A busy machine can still upset one of them.
        assert patched < 1.5 * plain, said


def readme_lines():
    readme = HERE.parent.parent / "README.md"
    if not readme.exists():
        return []
    return re.findall(r"```python\n(.*?)```", readme.read_text(), re.DOTALL)


@pytest.mark.parametrize("lines", readme_lines())
def test_the_readmes_python_works_when_pasted(lines, tmp_path):
    pytest.importorskip(NEED_TORCH)
    (tmp_path / "pasted.py").write_text(lines)
    run(tmp_path / "pasted.py", cwd=tmp_path)


def test_the_page_of_coverage_is_what_is(tmp_path):
    pytest.importorskip(NEED_TORCH)
    script = HERE.parent.parent / "scripts" / "coverage.py"
    if not script.exists():
        pytest.skip("this is no checkout")
    run(script, "--check", cwd=tmp_path)
