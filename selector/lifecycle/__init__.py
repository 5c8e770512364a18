"""Which prompts rest, and what may be said of them: reviews, statements with evidence, suspects."""
