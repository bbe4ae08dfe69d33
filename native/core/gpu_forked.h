/* GPU drivers in a child made by fork. */
#ifndef SILO_GPU_FORKED_H
#define SILO_GPU_FORKED_H

/* Register the handler for children made by fork; once. 0, or an errno. */
int silo_gpu_forked_init(void);

#endif
