"""From an uploaded body to rows of a pool, and back: formats, checks, identity, and what becomes of each row.

Nothing here knows SQL or HTTP; `api.db.imports` drives it.
"""
