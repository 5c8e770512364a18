"""One owner for each run, and how far its log reaches."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "run_leases",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("server", sa.BigInteger(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_run_leases_run_id"),
        sa.PrimaryKeyConstraint("run_id", name="pk_run_leases"),
    )
    op.add_column("runs", sa.Column("last_seq", sa.BigInteger(), nullable=False, server_default="0"))
    op.execute("UPDATE runs SET last_seq = (SELECT coalesce(max(seq), 0) FROM events WHERE events.run_id = runs.id)")


def downgrade() -> None:
    with op.batch_alter_table("runs") as runs:
        runs.drop_column("last_seq")
    op.drop_table("run_leases")
