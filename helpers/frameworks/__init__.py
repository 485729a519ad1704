"""One module a framework, with the same public functions and signatures in each.

``tests/test_frameworks_contract.py`` holds them together; read any two side by side.
"""

MODULES = ("pytorch", "keras", "tensorflow", "mxnet", "chainer")
"""The modules that exist, in the order the comparison shows them."""
