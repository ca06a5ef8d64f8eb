"""Gradients of single examples: how they are had, clipped and summed."""
