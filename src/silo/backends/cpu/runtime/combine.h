/* Atomic adds whose old values nobody asks for: those of one tile that meet in one place are summed
   in a table first, so that cores contend once for a place and not once for an element. Sums wrap,
   as the adds would have. A slot is found by the place's own number: neighbours do not collide. */

enum { SILO_COMBINE_SLOTS_SUFFIX = 512 };

typedef struct {
    TYPE *place[SILO_COMBINE_SLOTS_SUFFIX]; /* NULL: nothing there */
    UTYPE sum[SILO_COMBINE_SLOTS_SUFFIX];
} silo_combine_SUFFIX;

SILO_INLINE void silo_combine_start_SUFFIX(silo_combine_SUFFIX *table) {
    __builtin_memset(table->place, 0, sizeof table->place);
}

SILO_INLINE void silo_combine_add_SUFFIX(silo_combine_SUFFIX *table, TYPE *place, TYPE value,
                                         const int order) {
    uint64_t slot = (uintptr_t)place / sizeof *place % SILO_COMBINE_SLOTS_SUFFIX;
    TYPE *held = table->place[slot];
    if (held != place) {
        if (held)
            __atomic_fetch_add(held, (TYPE)table->sum[slot], order);
        table->place[slot] = place;
        table->sum[slot] = 0;
    }
    table->sum[slot] += (UTYPE)value;
}

SILO_INLINE void silo_combine_end_SUFFIX(silo_combine_SUFFIX *table, const int order) {
    for (int slot = 0; slot < SILO_COMBINE_SLOTS_SUFFIX; slot++)
        if (table->place[slot])
            __atomic_fetch_add(table->place[slot], (TYPE)table->sum[slot], order);
}
