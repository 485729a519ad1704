"""A plain training step of DenseNet121 in each framework, without this project's code.

Each module has ``make(pixels, batch)``: a call that takes that many steps on one batch of
normalised noise that is ready, on one CPU device or GPU, and returns when they are done. All
options are the framework's defaults.
"""
