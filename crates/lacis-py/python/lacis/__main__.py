"""``python -m lacis``: the command, as ``lacis`` on the path."""

import signal
import sys

from . import _lacis


def main():
    """Runs the command with this process' arguments and returns its exit code."""
    # The command listens to Ctrl-C itself, and saves before it stops.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _lacis.main(["lacis", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
