/* The functions that tl.device_print calls: the streams of the C library. */
int printf(char const *, ...);
int fflush(void *);
