"""Holdfast: locks from a broker."""

__version__ = "0.1.0"
