"""Hands a child process over to the fork server of the tests (fork_server.py), which has imported its libraries.

Python imports this module when it starts, because its folder is in PYTHONPATH. A training's child imports torch and
transformers, 5 seconds of work; a fork of a process that has imported them does not. Only children with one thread are
handed over, and only while WARM_SOCKET is set.
"""

import os
import sys

PR_SET_PDEATHSIG = 1
MODULES = ("pipeline.runtime.child", "torch.distributed.run")


def hand_over(module: str, arguments: list[str]) -> None:
    """Lets the fork server run the module with the files, folder and environment of this process, and ends like it."""
    import ctypes
    import json
    import signal
    import socket

    # The fork ends with this process, and this one with its parent.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    job = {"module": module, "arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
    message = json.dumps(job).encode()
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(os.environ["WARM_SOCKET"])
        socket.send_fds(server, [len(message).to_bytes(8, "big")], [0, 1, 2])
        server.sendall(message)
        reply = server.recv(16)
    if not reply:
        sys.stderr.write("the fork server of the tests has ended\n")
        os._exit(70)
    code = int(reply)
    if code < 0:
        if -code not in (signal.SIGKILL, signal.SIGSTOP):  # these have no handlers
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def main() -> None:
    words = sys.orig_argv
    if "-m" not in words[:-1] or os.environ.get("OMP_NUM_THREADS") != "1":
        return
    at = words.index("-m") + 1
    if words[at] in MODULES:
        hand_over(words[at], words[at + 1 :])
    if words[at].startswith("pipeline.bm25."):
        import jnius_config

        # Java that runs for a second gains nothing from its second compiler and its collector's threads.
        jnius_config.add_options("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


if "WARM_SOCKET" in os.environ:
    main()
