"""A CUDA device without a GPU: runs the real code on fake tensors and records what a GPU would do.

    device.load()                          # before torch is imported: a process has the fake device from its start
    with fake_device(), torch.device("cuda"):
        model = ...
    with fake_device(), Recorder() as recorder:
        step(model)
    recorder.kernels, recorder.waits, recorder.peak

`python -m fake_cuda` runs all cases (cases.py).
"""
