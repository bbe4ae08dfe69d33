/* Disables GPU drivers in children made by fork(). */
#ifndef SILO_GPU_FORKED_H
#define SILO_GPU_FORKED_H

/* Registers the handler for fork(). Call it once. Returns 0 or an errno. */
int silo_gpu_forked_init(void);

#endif
