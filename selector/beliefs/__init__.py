"""Between a run and its estimators: what groups teach beside passes, and what draws read of beliefs."""
