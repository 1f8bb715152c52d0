"""The client class for caches of django-redis: holdfast.django.CacheClient."""

from __future__ import annotations

from typing import Any

from django_redis.client import DefaultClient

from .django import client as holdfast_client
from .redis_lock import Lock, lock_class


class CacheClient(DefaultClient):
    """Its cache.lock() takes a lock of Holdfast; all else is the cache's."""

    def lock(self, key: Any, version: Any = None, *args: Any,
             **options: Any) -> Lock:
        """The arguments are those of django-redis."""
        options.pop("client", None)
        name = str(self.make_key(key, version=version))
        return lock_class(holdfast_client())(None, name, *args, **options)
