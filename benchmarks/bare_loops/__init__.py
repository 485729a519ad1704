"""DenseNet121's training step in each framework as one writes it by hand, with nothing around it.

Each module has ``make(pixels, batch, **options)``: a call that takes that many steps on one batch
of normalised noise that is ready, on one CPU device or GPU, and returns when they are done.
``OPTIONS`` are what `benchmarks/compute.py` switches on and off; the defaults are the framework's.
"""
