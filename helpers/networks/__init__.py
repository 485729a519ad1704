"""The networks in each framework, and the initial weights that all frameworks share."""
