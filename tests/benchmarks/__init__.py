"""Benchmarks: `python -m tests.benchmarks.NAME [--json] [--quick]`.

Each prints one JSON object a line, or a table for people, and compares with something in the same run, as absolute
times depend on the machine.
"""
