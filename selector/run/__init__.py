"""What a run knows, and the events it knows it from: state, tickets, snapshots, and going back to a checkpoint."""
