"""Make idle threads of mathematical libraries sleep, so that loaders can use their cores."""

VARIABLES = {"OPENBLAS_THREAD_TIMEOUT": "18"}
"""Variables that every kernel is started with. OpenBLAS is NumPy's, and so Chainer's on a CPU. Its
threads spin for 2**26 cycles before they sleep; after 2**18, a step takes no longer. Source:
docs/speed.md."""
