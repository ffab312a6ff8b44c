"""Runs the cases of clients/specification against this package. clients/specification/README.md has their format."""
