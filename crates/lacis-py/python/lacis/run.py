"""``python -m lacis.run script.py …``: patches torch_geometric, then runs the script unchanged.

``python -m lacis.run -m package.module …`` runs a module. ``--report`` before the script prints
``lacis.report()`` at the end.
"""

import runpy
import sys

import lacis

_USAGE = "usage: python -m lacis.run [--report] (script.py | -m module) [arguments …]"


def main(arguments):
    """Runs a script as Python would, patched; returns nothing, the script decides how it ends."""
    report = arguments[:1] == ["--report"]
    arguments = arguments[report:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE, file=sys.stdout if arguments else sys.stderr)
        sys.exit(0 if arguments else 2)
    lacis.patch()
    try:
        if arguments[0] == "-m":
            _run_module(arguments[1:])
        else:
            _run_script(arguments)
    finally:
        if report:
            print(lacis.report(), file=sys.stderr)


def _run_module(arguments):
    if not arguments:
        print(_USAGE, file=sys.stderr)
        sys.exit(2)
    sys.argv = arguments
    # The first place to look is where the user stands, as with `python -m`.
    sys.path[0] = ""
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


def _run_script(arguments):
    import os

    script = arguments[0]
    if not os.path.exists(script):
        print(f"python -m lacis.run: no such file: {script}", file=sys.stderr)
        sys.exit(2)
    sys.argv = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
