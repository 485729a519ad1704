"""Check in about ten seconds that an environment computes correctly on the given devices.

The self-test runs the layers of DenseNet forward and backward on every device, then one all-reduce
over all devices, and compares each result with the expected one (``expected``). It runs inside the
tested environment, in a process that may crash or hang (``worker``). Another process starts it,
limits its time and evaluates what it wrote (``starting``). ``rosetta run`` calls it before an
experiment on GPUs (``helpers.runner.preflight``), and ``rosetta doctor`` on request.
"""
