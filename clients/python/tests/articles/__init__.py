"""A Django app with one model, for tests/test_django.py."""
