"""The measurement protocol of a run as a document: its content, and the forms it comes in."""
