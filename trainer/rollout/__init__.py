"""Engines that turn tickets into groups of rollouts: `base` is the interface, one file an engine."""
