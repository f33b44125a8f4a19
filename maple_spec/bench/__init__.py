"""Measures the kernels on a model of the published sizes: `maple bench`."""
