"""Runs another program's module in this process, which gets a signal when its parent ends (`signal_with_parent`).

`python -m pipeline.runtime.descendant SIGTERM prefect server start`
"""

import runpy
import signal
import sys

from pipeline.runtime.processes import signal_with_parent


def main() -> None:
    signal_with_parent(signal.Signals[sys.argv[1]])
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
