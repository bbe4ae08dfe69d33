/* What tl.device_print writes with: the C library's streams. */
int printf(char const *, ...);
int fflush(void *);
