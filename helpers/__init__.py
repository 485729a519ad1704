"""What every notebook shares: recipe, devices, metrics, weights, fairness, records, runner.

Nothing here imports a deep-learning framework; the few framework-bound helpers are in
``helpers.frameworks.<name>``, the same functions in each.
"""
