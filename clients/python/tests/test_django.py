"""examples/django_guard.py, with SQLite."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import django
import pytest
import redis
from django.conf import settings
from django.db import connection, models, transaction

if not settings.configured:
    settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        INSTALLED_APPS=["articles"],
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    )
    django.setup()

from articles.models import Article, Note
from django_guard import Guarded

from bloomgate import Filter


@pytest.fixture
def articles(port: int, tmp_path: Path) -> Iterator[Guarded]:
    with connection.schema_editor() as editor:
        editor.create_model(Article)
        editor.create_model(Note)
    with redis.Redis(port=port) as client:
        Filter(client, "articles").reserve(1e-6, 1000, hash="siphash")
        yield Guarded(Article, client, "articles")
    for signal in (models.signals.pre_save, models.signals.post_save, models.signals.pre_delete, models.signals.post_delete):
        signal.receivers.clear()
    with connection.schema_editor() as editor:
        editor.delete_model(Article)
        editor.delete_model(Note)


class Queries:
    """Counts the queries inside of `with`."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, execute: Any, *words: Any) -> Any:
        self.count += 1
        return execute(*words)


def title(row: Any) -> str | None:
    return row and row.title


def test_reads_and_changes(articles: Guarded) -> None:
    article = Article.objects.create(title="one")
    queries = Queries()
    with connection.execute_wrapper(queries):
        for _ in range(3):
            assert title(articles.get(article.id)) == "one"
            assert articles.get(uuid.uuid4()) is None
    assert queries.count == 1
    article.title = "two"
    article.save()
    assert title(articles.get(article.id)) == "two"
    with transaction.atomic():
        articles.changing(article.id)
        Article.objects.filter(id=article.id).update(title="three")
    assert title(articles.get(article.id)) == "three"
    id = article.id
    article.delete()
    with connection.execute_wrapper(queries):
        assert articles.get(id) is None
    assert queries.count == 1 and str(id) not in Filter(articles.guard.client, "articles")


def test_what_is_rolled_back_is_not_cached(articles: Guarded) -> None:
    article = Article.objects.create(title="one")
    with pytest.raises(RuntimeError), transaction.atomic():
        article.title = "two"
        article.save()
        assert title(articles.get(article.id)) == "two", "its own change"
        raise RuntimeError
    assert title(articles.get(article.id)) == "one"
    with transaction.atomic():
        other = Article(title="new")
        other.save()
    assert title(articles.get(other.id)) == "new"


def test_without_the_server_nothing_is_written(articles: Guarded) -> None:
    article = Article.objects.create(title="one")
    articles.guard.client.execute_command("CONFIG", "SET", "min-replicas-to-write", 1)
    try:
        article.title = "two"
        with pytest.raises(redis.ResponseError):
            article.save()
        assert title(articles.get(article.id)) == "one"
    finally:
        articles.guard.client.execute_command("CONFIG", "SET", "min-replicas-to-write", 0)


def test_ids_that_the_database_gives(articles: Guarded) -> None:
    notes = Guarded(Note, articles.guard.client, "articles")
    with pytest.raises(RuntimeError, match="atomic"):
        Note.objects.create(title="never announced")
    with transaction.atomic():
        note = Note.objects.create(title="one")
    assert title(notes.get(note.id)) == "one"
