"""The guard in front of a Django model: `Guarded` returns rows by id, and tells the guard of every change."""

from __future__ import annotations

from typing import Any

from django.core import serializers
from django.db import models, transaction
from django.db.models.signals import post_delete, post_save, pre_delete, pre_save

from bloomgate import Guard


class ModelCodec:
    """Converts rows with Django's serializers."""

    def encode(self, row: models.Model, /) -> bytes:
        return serializers.serialize("json", [row]).encode()

    def decode(self, data: bytes, /) -> models.Model:
        [found] = serializers.deserialize("json", data.decode())
        return found.object


class Guarded:
    """`Guarded(Article, client, "articles").get(id)` returns the row, or None. Rows whose id the database assigns have to be
    created inside `transaction.atomic()`, so that the id can be announced before the commit."""

    def __init__(self, model: type[models.Model], client: Any, filter: str, **options: Any) -> None:
        self.model = model
        self.guard: Guard[models.Model] = Guard(client, filter, codec=ModelCodec(), **options)
        pre_save.connect(self._changes, sender=model, weak=False)
        post_save.connect(self._created, sender=model, weak=False)
        pre_delete.connect(self._changes, sender=model, weak=False)
        post_delete.connect(self._deleted, sender=model, weak=False)

    def get(self, id: Any) -> models.Model | None:
        if transaction.get_connection().in_atomic_block:
            # A transaction sees rows that nobody else may see yet, or a snapshot older than the lease: fill nothing.
            return self._load(id)
        return self.guard.get(str(id), lambda: self._load(id))

    def changing(self, *ids: Any) -> None:
        """To call inside a transaction, for changes that send no signals, such as QuerySet.update and bulk_create."""
        names = [str(id) for id in ids]
        self.guard.announce(*names)
        transaction.on_commit(lambda: self.guard.confirm(*names))

    def _load(self, id: Any) -> models.Model | None:
        return self.model._default_manager.filter(pk=id).first()

    def _changes(self, instance: models.Model, **_: Any) -> None:
        if instance.pk is not None:
            self.changing(instance.pk)
        elif not transaction.get_connection().in_atomic_block:
            raise RuntimeError("create rows whose id the database assigns inside transaction.atomic()")

    def _created(self, instance: models.Model, created: bool, **_: Any) -> None:
        if created and transaction.get_connection().in_atomic_block:
            self.changing(instance.pk)

    def _deleted(self, instance: models.Model, **_: Any) -> None:
        # Only for ids that never return, in a filter with HASH siphash. `instance.pk` is still set here.
        name = str(instance.pk)
        transaction.on_commit(lambda: self.guard.forget(name))


__all__ = ["Guarded", "ModelCodec"]
