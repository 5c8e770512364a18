"""A digest of each event and all before it, so that a log that was changed is not taken for one that was written."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("events", sa.Column("digest", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("events") as events:
        events.drop_column("digest")
