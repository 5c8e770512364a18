"""Tables that people can query: groups that ended, batches, and what was spent, as the log of a run has them."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "ended_groups",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("ticket", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("k", sa.Double(), nullable=False),
        sa.Column("reward_sum", sa.Double(), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("ended_seq", sa.BigInteger(), nullable=False),
        sa.Column("batch", sa.Integer(), nullable=False),
        sa.Column("prompt_row", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("rollouts", sa.Integer(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("informative", sa.SmallInteger(), nullable=True),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("void_reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_ended_groups_run_id"),
        sa.PrimaryKeyConstraint("run_id", "ticket", name="pk_ended_groups"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "drawn_batches",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("batch", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("branch", sa.Integer(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("draw_index", sa.BigInteger(), nullable=False),
        sa.Column("refill", sa.BigInteger(), nullable=False),
        sa.Column("policy_version", sa.BigInteger(), nullable=False),
        sa.Column("survives", sa.Boolean(), nullable=False),
        sa.Column("tickets", sa.Integer(), nullable=False),
        sa.Column("open", sa.Integer(), nullable=False),
        sa.Column("reported", sa.Integer(), nullable=False),
        sa.Column("void", sa.Integer(), nullable=False),
        sa.Column("informative", sa.Integer(), nullable=False),
        sa.Column("drawn_seq", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_drawn_batches_run_id"),
        sa.PrimaryKeyConstraint("run_id", "batch", name="pk_drawn_batches"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "run_costs",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("source", sa.String(length=16), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("rollouts", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_run_costs_run_id"),
        sa.PrimaryKeyConstraint("run_id", "source", name="pk_run_costs"),
        sqlite_with_rowid=False,
    )
    op.add_column("runs", sa.Column("projected_seq", sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    with op.batch_alter_table("runs") as runs:
        runs.drop_column("projected_seq")
    for table in ("run_costs", "drawn_batches", "ended_groups"):
        op.drop_table(table)
