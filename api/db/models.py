"""The tables, as SQLAlchemy Core sees them. The migrations make them; a test compares the two on both databases.

The log (`events`), the deltas of a pool (`pool_deltas`) and what prompts say (`prompts`) are the truth; counts in
`pools` and `snapshots` can be made anew from them. Times are seconds since 1970 in UTC. JSON is kept as text that is
already encoded: it is compared and handed out as it stands.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    text,
)

# Byte order on both databases, so that a list has one order and a cursor one meaning.
SortedText = Text().with_variant(Text(collation="C"), "postgresql")

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

pools = Table(
    "pools",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", SortedText, nullable=False, unique=True),
    Column("description", Text),
    Column("created_at", Double, nullable=False),
    Column("archived", Boolean, nullable=False),
    Column("revision", Integer, nullable=False),  # 0 before the first change of its prompts
    Column("num_rows", Integer, nullable=False),  # rows ever given out; the next prompt gets this number
    Column("tallies", Text, nullable=False),  # JSON: how many prompts by split, category, absent, quarantined
    Column("feature_lengths", Text, nullable=False),  # JSON: feature -> length of its vectors, 0 for a number
)

# Rows from `pools.num_rows` on are of an upload that is under way, or that was cut off: nobody sees them yet.
prompts = Table(
    "prompts",
    metadata,
    Column("pool_id", ForeignKey("pools.id"), primary_key=True),
    Column("row", Integer, primary_key=True, autoincrement=False),  # never given to another prompt
    Column("key", SortedText, nullable=False),
    Column("content_hash", String(64), nullable=False),  # of content and answer
    Column("question_hash", String(64)),  # of the content alone; equal for one question with several answers
    Column("content", Text),  # JSON: a text or a list of chat messages
    Column("answer", Text),
    Column("category", SortedText),
    Column("split", String(8), nullable=False),
    Column("features", Text),  # JSON
    Column("parent", Text),
    Column("meta", Text),  # JSON
    Column("absent", Boolean, nullable=False),  # not in the last upload that replaced the pool
    Column("superseded", Boolean, nullable=False),  # its key now belongs to an edited version, in another row
    Column("quarantined", Boolean, nullable=False),
    Column("quarantine_reason", Text),
    Column("replaces_row", Integer),  # the version before the edit
    Column("created_revision", Integer, nullable=False),
    Column("revision", Integer, nullable=False),  # of its last change
)
# Two partial indexes: among current prompts a key is unique; among superseded versions a key and a hash are.
Index(
    "ix_prompts_current_key",
    prompts.c.pool_id,
    prompts.c.key,
    unique=True,
    sqlite_where=text("superseded = 0"),  # the form in which queries write it, else SQLite does not see that it fits
    postgresql_where=text("NOT superseded"),
)
Index(
    "ix_prompts_superseded_key",
    prompts.c.pool_id,
    prompts.c.key,
    prompts.c.content_hash,
    unique=True,
    sqlite_where=text("superseded = 1"),
    postgresql_where=text("superseded"),
)
# Finds equal contents too: equal contents are the same question. A table and not an index, so that a long upload can
# fill it in order: its keys are hashes, and each row of an index would touch another page.
prompt_questions = Table(
    "prompt_questions",
    metadata,
    Column("pool_id", ForeignKey("pools.id"), primary_key=True),
    Column("question_hash", String(64), primary_key=True),
    Column("row", Integer, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)

pool_revisions = Table(
    "pool_revisions",
    metadata,
    Column("pool_id", ForeignKey("pools.id"), primary_key=True),
    Column("revision", Integer, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("kind", String(16), nullable=False),  # import, replace, quarantine, lift
    Column("num_rows", Integer, nullable=False),
    Column("num_changed", Integer, nullable=False),
)

pool_deltas = Table(
    "pool_deltas",
    metadata,
    Column("pool_id", ForeignKey("pools.id"), primary_key=True),
    Column("revision", Integer, primary_key=True, autoincrement=False),
    Column("part", Integer, primary_key=True, autoincrement=False),
    Column("payload", LargeBinary, nullable=False),  # api/db/columns.py
    Column("sha256", String(64), nullable=False),
)

runs = Table(
    "runs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", SortedText, nullable=False, unique=True),
    Column("pool_id", ForeignKey("pools.id"), nullable=False, index=True),
    Column("request", Text, nullable=False),  # JSON, as it was asked for
    Column("config", Text, nullable=False),  # JSON, with every default filled in
    Column("config_hash", String(64), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("completed", Boolean, nullable=False),
    # Of the last event, written with it: a log that lost its end would else pass for an earlier one.
    Column("last_seq", BigInteger, nullable=False, server_default="0"),
    # Of the event that the tables below agree with; behind `last_seq` they are made anew with the next event.
    Column("projected_seq", BigInteger, nullable=False, server_default="0"),
)

# Who owns a run, where several servers share a database. The row stays when the lease ends, so that tokens only rise.
run_leases = Table(
    "run_leases",
    metadata,
    Column("run_id", ForeignKey("runs.id"), primary_key=True),
    Column("token", BigInteger, nullable=False),  # raised with each owner; every write of the run names it
    Column("server", BigInteger, nullable=False),  # the advisory lock that this process holds for as long as it lives
    Column("address", Text, nullable=False),  # where others find it
    Column("expires_at", Double, nullable=False),  # by the database's clock; 0 once it was given back
)

events = Table(
    "events",
    metadata,
    Column("run_id", ForeignKey("runs.id"), primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("digest", LargeBinary),  # api/db/digests.py; none in what versions wrote that had no chain
)

# Three tables for people, as a run's log has them: written with it in one transaction, made anew by `midband doctor
# --rebuild`, read by nothing else here. api/projections.py
ended_groups = Table(  # wide columns first: PostgreSQL pads those that come behind narrow ones
    "ended_groups",
    metadata,
    Column("run_id", ForeignKey("runs.id"), primary_key=True),
    Column("ticket", Integer, primary_key=True, autoincrement=False),  # ordinal in the run
    Column("k", Double, nullable=False),  # rollouts that passed
    Column("reward_sum", Double),  # none: no rollout has a reward
    Column("seconds", Double, nullable=False),  # its rollouts' own, together
    Column("tokens", BigInteger, nullable=False),
    Column("ended_seq", BigInteger, nullable=False),  # `seq` of the event that ended it; `events.at` says when
    Column("batch", Integer, nullable=False),
    Column("prompt_row", Integer, nullable=False),  # of `prompts`, in the run's pool
    Column("attempt", Integer, nullable=False),  # the last one, which all of this is of
    Column("rollouts", Integer, nullable=False),  # that came back
    Column("n", Integer, nullable=False),  # of them scored
    Column("informative", SmallInteger),  # 1, 0, or none: not judged
    Column("purpose", Text, nullable=False),
    Column("void_reason", Text),  # none: it was reported
    sqlite_with_rowid=False,
)
drawn_batches = Table(
    "drawn_batches",
    metadata,
    Column("run_id", ForeignKey("runs.id"), primary_key=True),
    Column("batch", Integer, primary_key=True, autoincrement=False),  # ordinal in the run
    Column("branch", Integer, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("draw_index", BigInteger, nullable=False),
    Column("refill", BigInteger, nullable=False),
    Column("policy_version", BigInteger, nullable=False),
    Column("survives", Boolean, nullable=False),  # no restore discarded it
    Column("tickets", Integer, nullable=False),
    Column("open", Integer, nullable=False),
    Column("reported", Integer, nullable=False),
    Column("void", Integer, nullable=False),
    Column("informative", Integer, nullable=False),  # of those reported
    Column("drawn_seq", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
run_costs = Table(
    "run_costs",
    metadata,
    Column("run_id", ForeignKey("runs.id"), primary_key=True),
    Column("source", String(16), primary_key=True),
    Column("tokens", BigInteger, nullable=False),
    Column("rollouts", BigInteger, nullable=False),
    Column("seconds", Double, nullable=False),  # rollouts' own, together
    sqlite_with_rowid=False,
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("run_id", ForeignKey("runs.id"), primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String(32), primary_key=True),
    Column("at", Double, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("sha256", String(64), nullable=False),
)

# What rollouts of probes say, of runs with a rollout store, for as long as the run's log holds them.
rollout_bodies = Table(
    "rollout_bodies",
    metadata,
    Column("run_id", ForeignKey("runs.id"), primary_key=True),
    Column("serial", BigInteger, primary_key=True, autoincrement=False),  # selector/rollout_store.py
    Column("payload", LargeBinary, nullable=False),  # JSON, as it was sent
)

keys = Table(
    "keys",
    metadata,
    Column("prefix", String(32), primary_key=True),  # shown; tells keys apart
    Column("digest", String(64), nullable=False),  # SHA-256 of the whole key, which is kept nowhere
    Column("name", Text),
    Column("scopes", Text, nullable=False),  # JSON list
    Column("pools", Text, nullable=False),  # JSON list of names; with `runs` empty too: bound to nothing
    Column("runs", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
)

# The trail: who changed what. Written before the change itself, so a line says that it was let through.
management_calls = Table(
    "management_calls",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("at", Double, nullable=False, index=True),
    Column("key", String(32)),  # prefix of the caller's; none from the command line or while no key exists
    Column("action", Text, nullable=False),  # method and path of the route, or the command
    Column("target", Text, nullable=False),  # a name, never what it holds
)
