"""The endpoints, one file for each part of the contract. An endpoint parses, calls, converts."""
