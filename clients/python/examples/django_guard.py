"""The guard in front of a Django model: `Guarded` returns rows by id, and announces every change to the guard."""

from __future__ import annotations

from typing import Any

from django.core import serializers
from django.db import models, router, transaction
from django.db.models.signals import post_delete, post_save, pre_delete, pre_save

from bloomgate import Guard


class ModelCodec:
    """Converts rows with Django's serializers."""

    def __init__(self, using: str) -> None:
        self.using = using

    def encode(self, row: models.Model, /) -> bytes:
        return serializers.serialize("json", [row]).encode()

    def decode(self, data: bytes, /) -> models.Model:
        [found] = serializers.deserialize("json", data.decode(), using=self.using)
        row: models.Model = found.object
        # The row exists. Without this, saving it would insert a new row if its id has a default.
        row._state.adding = False
        row._state.db = self.using
        return row


class Guarded:
    """`Guarded(Article, client, "articles").get(id)` returns the row, or None. Rows whose id is assigned by the database must
    be created inside `transaction.atomic()`, so that the id can be announced before the commit.

    `using` names the primary database, by default the one to which Django's router writes the model."""

    def __init__(
        self, model: type[models.Model], client: Any, filter: str, *, using: str | None = None, **options: Any
    ) -> None:
        if model._meta.concrete_model is None or model._meta.concrete_model._meta.parents:
            raise TypeError(f"{model.__name__} is abstract, or has a part of its columns in the table of a parent")
        self.model = model
        self.using = using or router.db_for_write(model)
        self.guard: Guard[models.Model] = Guard(client, filter, codec=ModelCodec(self.using), **options)
        # Without `sender`, because proxies and children of the model send their own signals.
        pre_save.connect(self._saving, weak=False)
        post_save.connect(self._saved, weak=False)
        pre_delete.connect(self._deleting, weak=False)
        post_delete.connect(self._deleted, weak=False)

    def get(self, id: Any) -> models.Model | None:
        connection = transaction.get_connection(self.using)
        if connection.in_atomic_block or not connection.get_autocommit():
            # A transaction may see uncommitted rows, or a snapshot older than the lease, so nothing is filled.
            return self._load(id)
        return self.guard.get(str(id), lambda _: self._load(id))

    def changing(self, *ids: Any, using: str | None = None) -> None:
        """Must be called inside a transaction on the database `using`, for changes that send no signals, such as
        QuerySet.update and bulk_create."""
        using = using or self.using
        if not transaction.get_connection(using).in_atomic_block:
            raise RuntimeError(f"call this inside transaction.atomic(using={using!r}), with the change")
        names = [str(id) for id in ids]
        self.guard.announce(*names)
        transaction.on_commit(lambda: self.guard.confirm(*names), using=using)

    def _load(self, id: Any) -> models.Model | None:
        return self.model._default_manager.using(self.using).filter(pk=id).first()

    def _id(self, instance: models.Model) -> Any:
        """Returns the id of a row of this model or of a child model; None if the database has not assigned it yet."""
        return getattr(instance, self.model._meta.pk.attname)

    def _saving(self, sender: Any, instance: models.Model, using: str, **_: Any) -> None:
        if not issubclass(sender._meta.concrete_model, self.model._meta.concrete_model):
            return
        connection = transaction.get_connection(using)
        if self._id(instance) is None or not (connection.in_atomic_block or connection.get_autocommit()):
            if not connection.in_atomic_block:
                raise RuntimeError(
                    "save rows whose id the database assigns inside transaction.atomic(), and any row if autocommit is off"
                )
        elif connection.in_atomic_block:
            self.changing(self._id(instance), using=using)
        else:
            # The write commits the row; `_saved` confirms it.
            self.guard.announce(str(self._id(instance)))

    def _saved(self, sender: Any, instance: models.Model, created: bool, using: str, **_: Any) -> None:
        if not issubclass(sender._meta.concrete_model, self.model._meta.concrete_model):
            return
        if not transaction.get_connection(using).in_atomic_block:
            self.guard.confirm(str(self._id(instance)))
        elif created:
            self.changing(self._id(instance), using=using)

    def _deleting(self, sender: Any, instance: models.Model, using: str, **_: Any) -> None:
        # Django deletes inside a transaction, and also sends this signal for the row of each parent.
        if sender._meta.concrete_model is self.model._meta.concrete_model:
            self.changing(self._id(instance), using=using)

    def _deleted(self, sender: Any, instance: models.Model, using: str, **_: Any) -> None:
        # Only for ids that are never used again, in a filter with HASH siphash. The instance still has its id here.
        if sender._meta.concrete_model is self.model._meta.concrete_model:
            name = str(self._id(instance))
            transaction.on_commit(lambda: self.guard.forget(name), using=using)


__all__ = ["Guarded", "ModelCodec"]
