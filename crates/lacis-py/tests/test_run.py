"""``python -m lacis.run``: a script as Python runs it, patched."""

import subprocess
import sys

import pytest

pytest.importorskip("torch_geometric")


def run(*arguments, cwd=None):
    command = [sys.executable, "-W", "ignore", "-m", "lacis.run", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd)


SCRIPT = """
import sys
from neighbour import value
from torch_geometric.nn import GCNConv
import torch

if __name__ == "__main__":
    GCNConv(4, 4)(torch.ones(3, 4), torch.tensor([[0, 1], [1, 2]]))
    import lacis
    print(sys.argv[1:], value, [row["name"] for row in lacis.report().rows])
    sys.exit(7)
"""


def test_a_script_sees_its_arguments_its_folder_and_the_patch(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "neighbour.py").write_text("value = 'beside'")
    outcome = run(tmp_path / "script.py", "--epochs", "3")
    assert outcome.returncode == 7, outcome.stderr
    assert "['--epochs', '3'] beside" in outcome.stdout and "GCNConv" in outcome.stdout


def test_modules_run_too_and_report(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "neighbour.py").write_text("value = 'beside'")
    outcome = run("--report", "-m", "script", "x", cwd=tmp_path)
    assert outcome.returncode == 7, outcome.stderr
    assert "['x'] beside" in outcome.stdout and "lacis: patched" in outcome.stderr


def test_misuse(tmp_path):
    assert run().returncode == 2
    assert run("--help").returncode == 0
    missing = run(tmp_path / "nowhere.py")
    assert missing.returncode == 2 and "nowhere.py" in missing.stderr
