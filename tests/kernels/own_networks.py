"""What holds of a custom network in every framework, with a small one for each."""

from pathlib import Path

from helpers.recipe import Recipe, lookup

NETS = {
    "pytorch": """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.ReLU(),
        )
        self.scale = nn.Parameter(torch.rand(1, 16, 1, 1))
        self.fixed = nn.Parameter(torch.rand(16), requires_grad=False)
        self.drop = nn.Dropout(0.1)
        self.head = nn.LazyLinear(outputs)

    def forward(self, x):
        return self.head(self.drop((self.features(x) * self.scale).mean((2, 3)) + self.fixed))


def net(outputs):
    return Net(outputs)
""",
    "keras": """
import keras
from keras import layers


def net(outputs):
    images = keras.Input((None, None, 3))
    x = images
    for channels in (8, 16):
        x = layers.Conv2D(channels, 3, 2, "same")(x)
        x = layers.BatchNormalization()(x)
        x = layers.ReLU()(x)
    x = layers.LayerNormalization()(layers.GlobalAveragePooling2D()(x))
    return keras.Model(images, layers.Dense(outputs)(x))
""",
    "tensorflow": """
import tensorflow as tf


class Net(tf.Module):
    def __init__(self, outputs):
        super().__init__()
        self.kernels = [
            tf.Variable(tf.random.normal((3, 3, *between)) * 0.1) for between in ((3, 8), (8, 16))
        ]
        self.mean = tf.Variable(tf.zeros(16), trainable=False)
        self.weight = tf.Variable(tf.random.normal((16, outputs)) * 0.1)
        self.bias = tf.Variable(tf.zeros(outputs))

    def __call__(self, x, training):
        for kernel in self.kernels:
            x = tf.nn.relu(tf.nn.conv2d(x, tf.cast(kernel, x.dtype), 2, "SAME"))
        x = tf.cast(tf.reduce_mean(x, axis=[1, 2]), tf.float32)
        if training:
            self.mean.assign(0.9 * self.mean + 0.1 * tf.reduce_mean(x, axis=0))
        return (x - self.mean) @ self.weight + self.bias


def net(outputs):
    return Net(outputs)
""",
    "mxnet": """
import mxnet as mx
from mxnet.gluon import nn


def net(outputs):
    model = nn.HybridSequential()
    model.add(
        nn.Conv2D(8, 3, 2, 1), nn.BatchNorm(), nn.Activation("relu"),
        nn.Conv2D(16, 3, 2, 1, weight_initializer=mx.init.Xavier()), nn.Activation("relu"),
        nn.GlobalAvgPool2D(), nn.Dropout(0.1), nn.Dense(outputs),
    )
    return model
""",
    "chainer": """
import chainer
import chainer.functions as F
import chainer.links as L


class Net(chainer.Chain):
    def __init__(self, outputs):
        super().__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(3, 8, 3, 2, 1)
            self.norm1 = L.BatchNormalization(8)
            self.conv2 = L.Convolution2D(None, 16, 3, 2, 1)
            self.scale = L.Scale(1, (16,))
            self.head = L.Linear(None, outputs)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)))
        x = F.relu(self.scale(self.conv2(x)))
        return self.head(F.mean(x, axis=(2, 3)))


def net(outputs):
    return Net(outputs)
""",
    "jax": """
import numpy as np
from flax import nnx


class Net(nnx.Module):
    def __init__(self, outputs, rngs):
        self.conv1 = nnx.Conv(3, 8, (3, 3), 2, rngs=rngs)
        self.norm1 = nnx.BatchNorm(8, momentum=0.9, rngs=rngs)
        self.conv2 = nnx.Conv(8, 16, (3, 3), 2, rngs=rngs)
        self.norm2 = nnx.GroupNorm(16, 4, rngs=rngs)
        self.drop = nnx.Dropout(0.1, rngs=rngs)
        self.head = nnx.Linear(16, outputs, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.norm1(self.conv1(x)))
        x = nnx.relu(self.norm2(self.conv2(x)))
        return self.head(self.drop(x.mean((1, 2))))


def net(outputs):
    return Net(outputs, nnx.Rngs(np.random.randint(2**31)))
""",
}

READER = """

import numpy as np


class Reader:
    classes = ["dark", "dim", "bright"]

    def __init__(self, folder=None):
        self.targets = np.arange(300) % 3

    def splits(self):
        return dict(zip(("train", "valid", "test"), np.split(np.arange(300), [200, 250])))

    def read(self, i):
        noise = np.random.default_rng(i).integers(0, 100, (32, 32, 3), dtype=np.uint8)
        return noise + np.uint8(50 * self.targets[i])
"""
CLASSES = """
[data]
reader = "mine.py:Reader"
image_size = 32
crop = 28
[model]
{module} = "mine.py:net"
[train]
task = "multiclass"
epochs = 5
optimizer = "sgd"
momentum = 0.9
learning_rate = 0.02
weight_decay = 1e-3
warmup_epochs = 1.5
lr_gamma = 0.1
lr_milestones = [2, 4]
"""
OF_DEMO = """
recipe = "demo"
[model]
{module} = "mine.py:{name}"
[train]
batch_size = 8
epochs = 3
optimizer = "sgd"
momentum = 0.9
learning_rate = 0.01
weight_decay = 1e-4
"""
GREY = '''

class Grey(Reader):
    """Grey images that are not square, with an odd margin around the crop, and findings."""

    classes = ["mass", "nodule", "effusion"]

    def __init__(self, folder=None):
        self.targets = np.arange(300)[:, None] // np.array([1, 2, 4]) % 2

    def read(self, i):
        return np.random.default_rng(i).integers(0, 256, (33, 35, 1), dtype=np.uint8)
'''
FINDINGS = {
    '"mine.py:Reader"': '"mine.py:Grey"\ncolor_mode = "grayscale"',
    "image_size = 32": "image_size = 33",
    '"multiclass"': '"multilabel"',
    '"sgd"\nmomentum = 0.9': '"adam"',
}
"""What the recipe of findings has in place of the recipe of classes."""


def recipe_of(folder: Path, module: str, code: str | None = None, name: str = "net") -> Path:
    """A recipe's file, and the code beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mine.py").write_text(NETS[module] if code is None else code)
    (folder / "mine.toml").write_text(OF_DEMO.format(module=module, name=name))
    return folder / "mine.toml"


def recipe_of_classes(folder: Path, module: str) -> Path:
    """Custom network and reader, momentum, warm-up and drops; of a network without dropout."""
    folder.mkdir(parents=True)
    code = NETS[module].replace("Dropout(0.1", "Dropout(0.0")
    (folder / "mine.py").write_text(code + READER)
    (folder / "mine.toml").write_text(CLASSES.format(module=module))
    return folder / "mine.toml"


def recipe_of_findings(folder: Path, module: str) -> Path:
    """The same network with Adam, and a reader of grey images that have findings."""
    path = recipe_of_classes(folder, module)
    text = path.read_text()
    for before, after in FINDINGS.items():
        text = text.replace(before, after)
    path.write_text(text)
    code = path.with_suffix(".py")
    code.write_text(code.read_text() + GREY)
    return path


def recipe_of_all(folder: Path) -> Path:
    """The same for all frameworks at once, each with a file of its own."""
    path = recipe_of_classes(folder, "pytorch")
    path.with_suffix(".py").write_text(READER)
    for module, code in NETS.items():
        (folder / f"own_{module}.py").write_text(code.replace("Dropout(0.1", "Dropout(0.0"))
    networks = "\n".join(f'{module} = "own_{module}.py:net"' for module in NETS)
    text = path.read_text().replace('pytorch = "mine.py:net"', networks)
    text = text.replace("epochs = 5", "epochs = 3\nbatch_size = 8")
    path.write_text(text.replace("milestones = [2, 4]", "milestones = [1]"))
    return path


def read(path: Path) -> Recipe:
    return lookup(str(path), demo=True)
