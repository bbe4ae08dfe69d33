/* Calls of kernels from programs that XLA runs (jax): one handler a platform, registered with XLA,
 * launches what a digest in the program names.
 *
 * A call is kept under its digest and the number of the device, and lives as long as the process:
 * XLA does not say when it is done with a program. A handler that does not know a digest asks the
 * resolver, a Python function, which keeps the call or raises. A call that is known runs no Python
 * code and needs no lock of Python's. */
#ifndef SILO_XLA_CALL_H
#define SILO_XLA_CALL_H

#include "kernel.h"
#include "xla_abi.h"

/* Of a digest in hex, as a program has it. */
#define SILO_XLA_DIGEST 64
/* Axes that vmap may put before an array's own. */
#define SILO_XLA_BATCH 8

/* One array that XLA passes: what its memory has to be. */
struct silo_xla_buffer {
    int32_t dtype;    /* XLA's number */
    int32_t rank;     /* of one example */
    int64_t *dims;    /* owned */
    uint64_t bytes;   /* of one example */
    int16_t slot;     /* the parameter that gets its address; SILO_SLOT_NULL: none does */
    int16_t alias;    /* of a result: the operand whose memory it is; -1: memory of its own */
    bool aligned;     /* the code assumes a multiple of 16 */
    const char *name; /* of the parameter; owned */
};

struct silo_xla_call {
    char digest[SILO_XLA_DIGEST];
    int32_t device;               /* 0 on a CPU */
    struct silo_binding *binding; /* owned */
    uint32_t grid[3];
    bool empty;      /* the grid has no programs */
    char *kernel;    /* its name; owned */
    int32_t count;   /* parameters of the launcher */
    uint64_t *slots; /* owned: their values, 0 for arrays; slots[SILO_SLOT_NULL] is 0 */
    int32_t operands, results;
    struct silo_xla_buffer *buffers; /* owned: the operands, then the results */
    struct silo_xla_call *next;      /* in its bucket; set before it is published */
};

/* The call, or NULL. */
const struct silo_xla_call *silo_xla_find(const char *digest, int32_t device);
/* Take a call into the table, for ever; false where it has one of that digest and device. */
bool silo_xla_publish(struct silo_xla_call *call);

/* What XLA calls. Both are safe from any thread. */
struct silo_xla_error *silo_xla_on_cpu(struct silo_xla_frame *frame);
struct silo_xla_error *silo_xla_on_cuda(struct silo_xla_frame *frame);

/* Ask Python for a call: 0, or -1 with a text in `message`. */
typedef int silo_xla_ask(const char *digest, const char *platform, int32_t device, char *message,
                         size_t size);

/* Who is asked; set by xla_module.c when the module is made. */
extern silo_xla_ask *silo_xla_resolver;

/* The version of the interface that XLA is told, 0.minor. */
extern int32_t silo_xla_minor;

#endif
