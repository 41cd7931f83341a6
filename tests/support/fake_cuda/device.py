"""Builds guard.cpp once for each version of torch, and loads it before torch.

FakeTensorMode computes shapes, types and devices without data. For tensors on `cuda` and `mps` it needs device guards,
which a CPU build of torch lacks: guard.cpp registers them.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

SOURCE = Path(__file__).with_name("guard.cpp")


def torch_folder() -> Path:
    """Returns the folder of the package torch, without importing it."""
    spec = find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def compiler() -> str | None:
    """Returns the path of a C++ compiler; None if there is none."""
    return next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)


def missing() -> str | None:
    """Returns why this machine cannot have the fake device; None if it can."""
    if compiler() is None:
        return "no C++ compiler"
    if not (torch_folder() / "lib" / "libtorch_cpu.so").exists():
        return "the fake device is built for Linux"
    if (torch_folder() / "lib" / "libtorch_cuda.so").exists():
        return "torch is a CUDA build, which has a device guard of its own"
    return None


def library() -> Path:
    """Returns the compiled guard.cpp from the user's cache; compiles it if it is not there (some seconds).

    Raises CalledProcessError, with the compiler's messages, if it does not compile.
    """
    key = hashlib.sha256(SOURCE.read_bytes() + version("torch").encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cocondenser" / "fake_cuda"
    built = cache / f"guard-{key}.so"
    if not built.exists():
        cache.mkdir(parents=True, exist_ok=True)
        torch = torch_folder()
        includes = [f"-I{torch / 'include'}", f"-I{torch / 'include/torch/csrc/api/include'}"]
        # Several processes may compile at once: each writes its own file and renames it.
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            own = Path(folder) / built.name
            program = [compiler() or "c++", "-std=c++20", "-O0", "-shared", "-fPIC", *includes, str(SOURCE)]
            libraries = [f"-L{torch / 'lib'}", "-lc10", "-ltorch_cpu"]
            subprocess.run([*program, "-o", str(own), *libraries], check=True, capture_output=True, text=True)
            own.rename(built)
    return built


def load() -> None:
    """Gives this process the fake device. Call it before torch is imported."""
    assert "torch" not in sys.modules, "torch asks for its devices when it is imported"
    libraries = torch_folder() / "lib"
    for path in (libraries / "libc10.so", libraries / "libtorch_cpu.so", library()):
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


@contextmanager
def as_mps() -> Iterator[None]:
    """Within the block the fake device is a Mac's GPU."""
    import torch

    use_mps = ctypes.CDLL(str(library())).use_mps
    torch.backends.mps.is_available.cache_clear()
    use_mps(True)
    try:
        yield
    finally:
        use_mps(False)
        torch.backends.mps.is_available.cache_clear()
