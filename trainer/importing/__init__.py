"""Prompts from files that others made: `files` finds and reads them, `layouts` says what their columns mean, `command`
uploads them and reports."""
