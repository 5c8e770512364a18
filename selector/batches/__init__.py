"""From a run to a batch: what policies see, whom a draw may take, how a batch is refilled, what is recorded of it."""
