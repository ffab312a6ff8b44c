"""The model."""

from __future__ import annotations

import uuid

from django.db import models


class Article(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    title = models.TextField()


class Note(models.Model):
    title = models.TextField()


class LongArticle(Article):
    body = models.TextField()


class SameArticle(Article):
    class Meta:
        proxy = True
