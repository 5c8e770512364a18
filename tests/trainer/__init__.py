"""Tests of the trainer's side: the client without a service, and with the real one in process."""
