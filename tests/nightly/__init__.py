"""Tests of whole programs, each in a separate process: ``make nightly``."""
