"""What rollouts of probes say, for train tickets to begin with."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rollout_bodies",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("serial", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_rollout_bodies_run_id"),
        sa.PrimaryKeyConstraint("run_id", "serial", name="pk_rollout_bodies"),
    )


def downgrade() -> None:
    op.drop_table("rollout_bodies")
