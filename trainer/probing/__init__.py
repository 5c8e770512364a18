"""Probing from the trainer's side: takes probe tickets, generates, grades, reports. `midband probe` and `midband
profile` are its commands; what deserves a probe, and when one has had enough, the service decides.
"""
