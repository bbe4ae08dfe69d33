/* Stores that bypass the caches, for results that no cache could hold until they are read. Only
 * whole cache lines are streamed; the rest is stored as usual. Other threads see the data after
 * silo_stream_end. */
typedef int64_t silo_stream_vector
    __attribute__((vector_size(SILO_VECTOR_BYTES), aligned(8), may_alias));
typedef int64_t silo_stream_line __attribute__((vector_size(SILO_VECTOR_BYTES), may_alias));
typedef long long silo_stream_long __attribute__((vector_size(SILO_VECTOR_BYTES), may_alias));

SILO_APART void silo_stream(void *to, const void *from, int64_t bytes) {
    char *target = to;
    const char *source = from;
    int64_t head = (int64_t)(-(uintptr_t)target & 63);
    if (bytes < head + 64) {
        __builtin_memcpy(target, source, (uintptr_t)bytes);
        return;
    }
    __builtin_memcpy(target, source, (uintptr_t)head);
    int64_t done = head;
    for (; done + 64 <= bytes; done += 64)
#pragma GCC unroll 4
        for (int part = 0; part < 64; part += SILO_VECTOR_BYTES) {
            silo_stream_vector item =
                *(const silo_stream_vector *)(const void *)(source + done + part);
            silo_stream_line *place = (silo_stream_line *)(void *)(target + done + part);
#if defined(__clang__)
            __builtin_nontemporal_store((silo_stream_line)item, place);
#elif defined(__x86_64__) && SILO_VECTOR_BITS == 512
            __builtin_ia32_movntdq512((void *)place, (silo_stream_long)item);
#elif defined(__x86_64__) && SILO_VECTOR_BITS == 256
            __builtin_ia32_movntdq256((void *)place, (silo_stream_long)item);
#elif defined(__x86_64__)
            __builtin_ia32_movntdq((void *)place, (silo_stream_long)item);
#else
            *place = (silo_stream_line)item;
#endif
        }
    __builtin_memcpy(target + done, source + done, (uintptr_t)(bytes - done));
}

SILO_INLINE void silo_stream_end(void) {
#if defined(__x86_64__)
    __builtin_ia32_sfence();
#else
    __atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}
