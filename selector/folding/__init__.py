"""What each event changes in a run: the fold over the log, arrivals of rollouts, closings of tickets."""
