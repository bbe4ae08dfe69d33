"""Triton's remote cache in a bundle, for programs whose launches stay on Triton's own path.

``TRITON_CACHE_MANAGER=triton.runtime.cache:RemoteCacheManager``,
``TRITON_REMOTE_CACHE_BACKEND=silo.kinds.triton.programs.triton_cache:Backend`` and ``SILO_TRITON_CACHE=K.silo`` enable
it.
"""

from __future__ import annotations

from silo.kinds.triton.front.adapter import remote_cache
from silo.kinds.triton.programs.records.cache_files import cache_of_settings

__all__ = ["Backend"]

Backend = remote_cache(cache_of_settings())
