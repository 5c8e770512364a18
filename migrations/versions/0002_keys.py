"""API keys, and the trail of management calls."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "keys",
        sa.Column("prefix", sa.String(length=32), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("pools", sa.Text(), nullable=False),
        sa.Column("runs", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("prefix", name="pk_keys"),
    )
    op.create_table(
        "management_calls",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("key", sa.String(length=32), nullable=True),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_management_calls"),
    )
    op.create_index("ix_management_calls_at", "management_calls", ["at"])


def downgrade() -> None:
    op.drop_table("management_calls")
    op.drop_table("keys")
