"""Compile every kernel that k-means needs: ``python -m bagwise.cluster.compile``.

A search without them starts this in the background (`kernels.compile_in_background`). Whoever
builds an image can run it, too. What is compiled is kept where numba keeps it.
"""

from bagwise.cluster.kernels import load_kernels
from bagwise.cluster.search import compile_kernels

if __name__ == "__main__":
    load_kernels()
    compile_kernels()
