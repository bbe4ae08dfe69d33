"""Triton's remote cache over a bundle, for programs that stay on Triton's own path.

``TRITON_CACHE_MANAGER=triton.runtime.cache:RemoteCacheManager``,
``TRITON_REMOTE_CACHE_BACKEND=silo.kinds.triton.programs.triton_cache:Backend`` and ``SILO_TRITON_CACHE=K.silo``
switch it on.
"""

from __future__ import annotations

from silo.kinds.triton.front.adapter import remote_cache
from silo.kinds.triton.programs.records.cache_files import cache_of_settings

__all__ = ["Backend"]

Backend = remote_cache(cache_of_settings())
