"""Tests of whole programs, each in a process of its own: ``make nightly``."""
