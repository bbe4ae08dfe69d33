/* The functions of the C library that tl.device_print calls; they write to its stream stdout. */
int printf(char const *, ...);
int fflush(void *);
