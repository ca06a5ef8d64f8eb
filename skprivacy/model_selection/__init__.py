"""Choosing a privacy level: what it costs in utility and what it buys against attacks."""

from .sweep import PrivacySweepCV

__all__ = ["PrivacySweepCV"]
