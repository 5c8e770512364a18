"""The service spread over a Ray cluster: an edge that speaks HTTP, and a process of its own for each run."""
