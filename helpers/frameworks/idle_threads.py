"""How threads of mathematical libraries wait for work, on cores that loaders could decode on."""

VARIABLES = {"OPENBLAS_THREAD_TIMEOUT": "18"}
"""Variables that every kernel is started with. OpenBLAS is NumPy's, and so Chainer's on a CPU. Its
threads spin for 2**26 cycles before they sleep; after 2**18, a step takes no longer. Source:
docs/speed.md."""
