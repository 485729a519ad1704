"""The loaders of the 2018 article, on today's versions: what the notebooks are timed against.

Each module has ``batches(folder, workers)``: ready batches without end, as the article's notebook
of that framework made them from RGB PNG files of 264 px. The article is the repository
ilkarman/DeepLearningFrameworks (the "Multi-GPU Rosetta Stone"); each module names its notebook,
and says what had to change.
"""
