"""All-reduce algorithms over MPI: MPI's own, a ring, and two over rows and columns of ranks.

``Study_AllReduce`` measures them, and ``ChainerMN_MultiNode`` can train with them. ``grids``
needs no MPI; importing ``methods`` joins MPI.
"""
