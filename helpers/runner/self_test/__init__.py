"""A probe: does a kernel compute on these devices, and rightly? Meant to take ten seconds.

The layers that DenseNet is made of, forward and backward on every device, then one all-reduce over
all of them, each held against a result that is known (``known``). A kernel is probed in its own
environment, by a process that may crash or hang (``inside``), which another one starts, limits and
judges (``outside``). ``compare`` does so before an experiment on GPUs (``experiment``), ``rosetta
doctor`` by itself (``__main__``).
"""
