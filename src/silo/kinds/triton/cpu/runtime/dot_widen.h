/* Converts contiguous elements of type ELEMENT to the type they are multiplied in. */
SILO_INLINE void silo_dot_widen_ELEMENT(const CTYPE *from, REAL *to, int64_t count) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        to[i] = silo_ELEMENT_to_FACTOR(from[i]);
}
