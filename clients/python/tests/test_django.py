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
from django.db import connection, connections, models, transaction

if not settings.configured:
    settings.configure(
        DATABASES={name: {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"} for name in ("default", "other")},
        INSTALLED_APPS=["articles"],
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    )
    django.setup()

from articles.models import Article, LongArticle, Note, SameArticle
from django_guard import Guarded

from bloomgate import Filter


@pytest.fixture
def articles(port: int, tmp_path: Path) -> Iterator[Guarded]:
    for name in ("default", "other"):
        with connections[name].schema_editor() as editor:
            for model in (Article, Note, LongArticle):
                editor.create_model(model)
    with redis.Redis(port=port) as client:
        Filter(client, "articles").reserve(1e-6, 1000, hash="siphash")
        yield Guarded(Article, client, "articles")
    for signal in (models.signals.pre_save, models.signals.post_save, models.signals.pre_delete, models.signals.post_delete):
        signal.receivers.clear()
    for name in ("default", "other"):
        with connections[name].schema_editor() as editor:
            for model in (LongArticle, Note, Article):
                editor.delete_model(model)


class Queries:
    """Counts the queries inside `with`."""

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


def test_rolled_back_rows_are_not_cached(articles: Guarded) -> None:
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


def test_ids_that_the_database_assigns(articles: Guarded) -> None:
    notes = Guarded(Note, articles.guard.client, "articles")
    with pytest.raises(RuntimeError, match="atomic"):
        Note.objects.create(title="never announced")
    with transaction.atomic():
        note = Note.objects.create(title="one")
    assert title(notes.get(note.id)) == "one"


class Reader:
    """Another process, which reads a row right before and after each statement that writes."""

    def __init__(self, articles: Guarded, id: Any) -> None:
        self.articles = articles
        self.id = id

    def read(self) -> None:
        # This thread may be inside a transaction; the other process is not.
        self.articles.guard.get(str(self.id), lambda _: self.articles._load(self.id))

    def __call__(self, execute: Any, sql: str, *words: Any) -> Any:
        if not sql.startswith(("INSERT", "UPDATE", "DELETE")):
            return execute(sql, *words)
        self.read()
        result = execute(sql, *words)
        self.read()
        return result


def test_a_reader_between_the_announcement_and_the_write(articles: Guarded) -> None:
    """In autocommit the write is the commit."""
    article = Article(title="one")
    with connection.execute_wrapper(Reader(articles, article.id)):
        article.save()
        assert title(articles.get(article.id)) == "one"
        article.title = "two"
        article.save()
        assert title(articles.get(article.id)) == "two"
        id = article.id
        article.delete()
        assert articles.get(id) is None


def test_a_cached_row_can_be_saved(articles: Guarded) -> None:
    article = Article.objects.create(title="one")
    for number in range(3):
        cached = articles.get(article.id)
        assert cached is not None and cached._state.db == "default"
        cached.title = f"change {number}"
        cached.save()
        assert title(articles.get(article.id)) == f"change {number}"
    assert Article.objects.count() == 1


def test_another_database(articles: Guarded) -> None:
    """A transaction on one database does not affect another."""
    other = Guarded(Article, articles.guard.client, "articles", using="other", prefix="{articles}:other:")
    article = Article(title="one")
    with transaction.atomic(), connections["other"].execute_wrapper(Reader(other, article.id)):
        article.save(using="other")
        assert title(other.get(article.id)) == "one"
        assert articles.get(article.id) is None
    with transaction.atomic(using="other"):
        article.title = "two"
        article.save(using="other")
        assert title(other.guard.get(str(article.id), lambda _: None)) is None, "nothing is confirmed before the commit"
        other.changing(article.id)
        with pytest.raises(RuntimeError, match="atomic"):
            articles.changing(article.id)
    cached = other.get(article.id)
    assert title(cached) == "two" and cached is not None and cached._state.db == "other"


def test_proxies_and_children(articles: Guarded) -> None:
    article = Article.objects.create(title="one")
    assert title(articles.get(article.id)) == "one"
    same = SameArticle.objects.get(id=article.id)
    same.title = "two"
    same.save()
    assert title(articles.get(article.id)) == "two"
    child = LongArticle.objects.create(title="long", body="text")
    assert title(articles.get(child.id)) == "long"
    child.delete(keep_parents=True)
    assert title(articles.get(child.id)) == "long"
    with pytest.raises(TypeError, match="parent"):
        Guarded(LongArticle, articles.guard.client, "articles")


def test_without_autocommit_nothing_is_filled(articles: Guarded) -> None:
    article = Article.objects.create(title="one")
    transaction.set_autocommit(False)
    try:
        Article.objects.filter(id=article.id).update(title="two")
        assert title(articles.get(article.id)) == "two"
        transaction.rollback()
    finally:
        transaction.set_autocommit(True)
    assert title(articles.get(article.id)) == "one"


def test_without_autocommit_rows_are_saved_in_transactions(articles: Guarded) -> None:
    transaction.set_autocommit(False)
    try:
        with pytest.raises(RuntimeError, match="autocommit"):
            Article.objects.create(title="announced too early")
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
