"""All-reduce written out: MPI's own, a ring, and the two ways over rows and columns of ranks.

It is what ``Study_AllReduce`` measures and what ``ChainerMN_MultiNode`` can train with. ``grids``
needs no MPI; who imports ``ranks`` or ``ways`` joins MPI.
"""
