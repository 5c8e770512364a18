"""From reported rollouts to closed groups: which rollouts count, and how far a ticket is."""
