"""Which prompts ask a question, in a table of its own: an upload fills it in order, which an index cannot be."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "prompt_questions",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("question_hash", sa.String(length=64), nullable=False),
        sa.Column("row", sa.Integer(), autoincrement=False, nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name="fk_prompt_questions_pool_id"),
        sa.PrimaryKeyConstraint("pool_id", "question_hash", "row", name="pk_prompt_questions"),
        sqlite_with_rowid=False,
    )
    op.execute(
        'INSERT INTO prompt_questions (pool_id, question_hash, "row") SELECT pool_id, question_hash, "row" '
        'FROM prompts WHERE question_hash IS NOT NULL ORDER BY pool_id, question_hash, "row"'
    )
    op.drop_index("ix_prompts_question", "prompts")


def downgrade() -> None:
    op.create_index("ix_prompts_question", "prompts", ["pool_id", "question_hash"])
    op.drop_table("prompt_questions")
