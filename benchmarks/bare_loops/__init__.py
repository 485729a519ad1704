"""A plain training step of DenseNet121 in each framework, without this project's code.

Each module has ``make(pixels, batch, **options)``: a call that takes that many steps on one batch
of normalised noise that is ready, on one CPU device or GPU, and returns when they are done.
``OPTIONS`` are what `benchmarks/compute.py` switches on and off; the defaults are the framework's.
"""
