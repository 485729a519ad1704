"""The networks in each framework, and the initial weights that all frameworks share.

The module of a framework has two functions. ``build(network, arrays, recipe)`` makes one of
``shapes.NETWORKS`` or ``shapes.SHALLOW`` for these weights, float arrays by torchvision's names,
which are yet to be loaded. ``own(recipe, outputs)`` makes the recipe's custom network, with the
framework's initial values, or raises UserError. Both give a model from images to logits.
"""
