"""A CUDA device without a GPU: runs the real code on fake tensors and records what a GPU would do.

    from fake_cuda import device
    device.load()  # before torch is imported: a process has the fake device from its start, or never
    from fake_cuda.recorder import Recorder, fake_device

    with fake_device():
        with torch.device("cuda"):
            model = ...
        with Recorder() as recorder:
            step(model)
    recorder.kernels, recorder.waits, recorder.peak

`PYTHONPATH=tests/support:. python -m fake_cuda` runs all cases (cases.py).
"""
