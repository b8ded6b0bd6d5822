"""The package as such: its import, its command, its versions."""

import subprocess
import sys

import lacis


def python(*args, **kwargs):
    command = [sys.executable, *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **kwargs)


def test_importing_is_quick_and_brings_no_torch():
    script = (
        "import sys, time; start = time.perf_counter(); import lacis; "
        "print(time.perf_counter() - start, 'torch' in sys.modules, 'numpy' in sys.modules)"
    )
    results = [python("-c", script).stdout.split() for _ in range(3)]
    assert min(float(seconds) for seconds, *_ in results) < 0.1
    assert all(others == ["False", "False"] for _, *others in results)


def test_unknown_names_are_attribute_errors():
    try:
        lacis.no_such_name
    except AttributeError as error:
        assert "no_such_name" in str(error)
    else:
        raise AssertionError("there is no such name")


def test_every_public_name_can_be_imported():
    for name in lacis.__all__:
        assert getattr(lacis, name) is not None
        assert name in dir(lacis)


def test_versions_are_shown(capsys):
    lacis.show_versions()
    shown = capsys.readouterr().out
    assert lacis.__version__ in shown
    assert "instruction sets" in shown
    assert "decided by" in shown


def test_the_module_is_the_command():
    outcome = python("-m", "lacis", "--version")
    assert outcome.returncode == 0
    assert lacis.__version__ in outcome.stdout
    outcome = python("-m", "lacis", "data", "info", "karate", "--json")
    assert outcome.returncode == 0
    assert '"nodes":34' in outcome.stdout.replace(" ", "")


def test_misuse_of_the_command_is_exit_code_2():
    outcome = python("-m", "lacis", "trian")
    assert outcome.returncode == 2
    assert "train" in outcome.stderr
