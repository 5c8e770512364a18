"""midband inside other people's trainers, a file for each; only that file imports the trainer it is named for."""
