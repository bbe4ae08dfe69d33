/* Rows that do not follow one another in memory: the CPU's own prefetching ends with each, so the
 * lines of a later row are prefetched while this one is read. A row past the tile is worth it where
 * the tile before this one ended where this one begins. */
enum { SILO_AHEAD_LINE = 64, SILO_AHEAD_BYTES = 8192, SILO_AHEAD_LEAST = 1024 };

typedef struct {
    char const *next; /* where the tile after this one would begin */
    int32_t goes_on;
} silo_tiles;

/* `row` is the address of row `at` of `rows`, so many `bytes` long and `apart` from the next. */
SILO_INLINE void silo_ahead(silo_tiles *tiles, void const *row, int64_t at, const int64_t rows,
                            int64_t apart, const int64_t bytes, const int32_t within) {
    int64_t const later = bytes < SILO_AHEAD_BYTES / 4 ? SILO_AHEAD_BYTES / bytes : 4;
    if (at == 0) {
        tiles->goes_on = tiles->next == (char const *)row;
        tiles->next = (char const *)row + rows * apart;
    }
    if ((apart >= SILO_AHEAD_LEAST || apart <= -SILO_AHEAD_LEAST) &&
        (tiles->goes_on || (within && at + later < rows)))
        for (int64_t k = 0; k < bytes; k += SILO_AHEAD_LINE)
            __builtin_prefetch((char const *)row + later * apart + k);
}
