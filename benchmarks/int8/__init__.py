"""int8 on a CPU: is it as good as float32, and how fast is it? (`python -m benchmarks.int8`)"""
