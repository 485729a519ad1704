"""What every notebook shares, in rooms; imports go one way, from a later room to an earlier one.

``networks``, ``frameworks`` (the registry, and one module a framework), ``fairness``, ``training``
(what notebooks call), ``results`` (what records say) and ``runner`` (the command). Here at the top
is what all of them use. ``tests/test_rooms.py`` holds the order.
"""
