"""The first tables: pools with their prompts and history, runs with their log and snapshots."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def sorted_text() -> sa.types.TypeEngine[str]:
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "pools",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sorted_text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("archived", sa.Boolean(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("num_rows", sa.Integer(), nullable=False),
        sa.Column("tallies", sa.Text(), nullable=False),
        sa.Column("feature_lengths", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_pools"),
        sa.UniqueConstraint("name", name="uq_pools_name"),
    )
    op.create_table(
        "prompts",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("row", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("key", sorted_text(), nullable=False),
        sa.Column("content_hash", sa.String(length=64), nullable=False),
        sa.Column("question_hash", sa.String(length=64), nullable=True),
        sa.Column("content", sa.Text(), nullable=True),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("category", sorted_text(), nullable=True),
        sa.Column("split", sa.String(length=8), nullable=False),
        sa.Column("features", sa.Text(), nullable=True),
        sa.Column("parent", sa.Text(), nullable=True),
        sa.Column("meta", sa.Text(), nullable=True),
        sa.Column("absent", sa.Boolean(), nullable=False),
        sa.Column("superseded", sa.Boolean(), nullable=False),
        sa.Column("quarantined", sa.Boolean(), nullable=False),
        sa.Column("quarantine_reason", sa.Text(), nullable=True),
        sa.Column("replaces_row", sa.Integer(), nullable=True),
        sa.Column("created_revision", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name="fk_prompts_pool_id"),
        sa.PrimaryKeyConstraint("pool_id", "row", name="pk_prompts"),
    )
    op.create_index(
        "ix_prompts_current_key",
        "prompts",
        ["pool_id", "key"],
        unique=True,
        sqlite_where=sa.text("superseded = 0"),
        postgresql_where=sa.text("NOT superseded"),
    )
    op.create_index(
        "ix_prompts_superseded_key",
        "prompts",
        ["pool_id", "key", "content_hash"],
        unique=True,
        sqlite_where=sa.text("superseded = 1"),
        postgresql_where=sa.text("superseded"),
    )
    op.create_index("ix_prompts_question", "prompts", ["pool_id", "question_hash"])
    op.create_table(
        "pool_revisions",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("num_rows", sa.Integer(), nullable=False),
        sa.Column("num_changed", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name="fk_pool_revisions_pool_id"),
        sa.PrimaryKeyConstraint("pool_id", "revision", name="pk_pool_revisions"),
    )
    op.create_table(
        "pool_deltas",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("part", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name="fk_pool_deltas_pool_id"),
        sa.PrimaryKeyConstraint("pool_id", "revision", "part", name="pk_pool_deltas"),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sorted_text(), nullable=False),
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("config_hash", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("completed", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name="fk_runs_pool_id"),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
        sa.UniqueConstraint("name", name="uq_runs_name"),
    )
    op.create_index("ix_runs_pool_id", "runs", ["pool_id"])
    op.create_table(
        "events",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_events_run_id"),
        sa.PrimaryKeyConstraint("run_id", "seq", name="pk_events"),
    )
    op.create_table(
        "snapshots",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_snapshots_run_id"),
        sa.PrimaryKeyConstraint("run_id", "seq", "kind", name="pk_snapshots"),
    )


def downgrade() -> None:
    for table in (
        "snapshots",
        "events",
        "runs",
        "pool_deltas",
        "pool_revisions",
        "prompts",
        "pools",
    ):
        op.drop_table(table)
