/* The time since a fixed moment, for waits with a time limit. */
struct silo_time {
    long seconds, nanoseconds;
};
int timespec_get(void *, int); /* C11's function; its struct is the one above on every target */

SILO_INLINE int64_t silo_nanoseconds(void) {
    struct silo_time now = {0, 0};
    timespec_get(&now, 1); /* TIME_UTC */
    return (int64_t)now.seconds * 1000000000 + now.nanoseconds;
}
