"""The data loaders of the 2018 article on today's versions, for comparison with the notebooks.

Each module has ``batches(folder, workers)``: ready batches without end, as the article's notebook
of that framework made them from RGB PNG files of 264 px. The article is the repository
ilkarman/DeepLearningFrameworks (the "Multi-GPU Rosetta Stone"); each module names its notebook,
and says what had to change. In all, `workers` is a parameter, a loader that ends with its epoch
begins the next, and labels are zeros, which cost the same.
"""
