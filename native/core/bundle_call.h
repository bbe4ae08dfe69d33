/* One call of a bundle's kernel: the arguments that were passed, and the facts read from them. */
#ifndef SILO_BUNDLE_CALL_H
#define SILO_BUNDLE_CALL_H

#include "bundle_kernel.h"
#include "tagged.h"

struct silo_kernel_call {
    struct silo_kernel *kernel;
    const silo_queue *queue;
    const silo_call *given; /* never NULL */
    struct silo_tagged tagged;
};

/* Reads the arguments into `call->tagged`, whose arrays the caller has set, and completes the key.
 */
int silo_call_read(struct silo_kernel_call *call, silo_error *error);

#endif
