"""Small C helpers that every kernel text may use."""

from __future__ import annotations

__all__ = ["PRELUDE"]

PRELUDE = """\
/* How many leading i of 0..limit-1 have base + i < bound, given that values are 32-bit and base may have left them. */
SILO_INLINE int64_t nest_below(int64_t base, int64_t bound, int64_t limit) {
  int64_t count = base < -2147483647 - 1 ? 0 : bound - base;
  count = count < 0 ? 0 : count;
  return count < limit ? count : limit;
}

/* Whether base .. base + limit - 1 are 32-bit values. */
SILO_INLINE int nest_fits(int64_t base, int64_t limit) {
  return base >= -2147483647 - 1 && base + limit - 1 <= 2147483647;
}
"""
