"""Persistence: tables, transactions, migrations and every query. Blocking; called from worker threads."""
