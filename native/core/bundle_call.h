/* One call of a bundle's kernel: the arguments that were passed, and the facts read from them. */
#ifndef SILO_BUNDLE_CALL_H
#define SILO_BUNDLE_CALL_H

#include "bundle_kernel.h"
#include "tagged.h"

struct silo_kernel_call {
    struct silo_kernel *kernel;
    const silo_queue *queue;
    const silo_call *options; /* never NULL */
    struct silo_tagged tagged;
};

/* Reads the arguments into the arrays of `call->tagged`, which the caller has allocated, and
 * completes the call's key (the words that the guard compares). */
int silo_call_read(struct silo_kernel_call *call, silo_error *error);

#endif
