"""One module a framework, with the same public functions and signatures in each.

``tests/test_frameworks_contract.py`` holds them together; read any two side by side.
"""

NOTEBOOKS = {
    "pytorch": "PyTorch_MultiGPU",
    "keras": "Keras_MultiGPU",
    "tensorflow": "TensorFlow_MultiGPU",
    "mxnet": "MXNet_Gluon_MultiGPU",
    "chainer": "Chainer_MultiGPU",
}
"""The modules that exist, in the order the comparison shows them, each with its notebook."""
