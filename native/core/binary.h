/* Code loaded where it runs: an object that the CPU driver has mapped, or a module of a GPU driver
 * on one device; and the functions taken from it.
 *
 * A binary is counted: each owner of a binary, or of a function of it, holds a reference. When the
 * last is given back while launches may still run on a GPU, it is retired, and unloaded by the next
 * load or release on that device once the device has done its work. Nothing here needs a lock of
 * the caller's; loading and giving back may take long or wait for the device, so Python calls both
 * without its lock. */
#ifndef SILO_BINARY_H
#define SILO_BINARY_H

#include "device.h"
#include "device_code.h"
#include "driver.h"
#include "error.h"

struct silo_binary {
    const struct silo_driver *driver;
    struct silo_gpu_device *device; /* NULL: a CPU */
    void *handle;        /* owned: the driver's module, or the mapped object; NULL: `address` */
    const void *address; /* a function of this process, whose owner keeps it loaded */
    void *image;         /* owned: the code, where a GPU's driver may read it later; else NULL */
    int borrowed;        /* `handle` is somebody else's: it is not unloaded here */
    uint32_t references; /* atomic */
    /* Set (relaxed, never cleared) once a launch of it was captured into a graph, which does not
     * keep it alive: the binary then stays loaded to the end of the process. */
    int captured;
};

/* Load code (cubin, PTX, hsaco) on a device, or with `device` NULL a shared object into this
 * process. On a CPU the object is mapped from memory if the system supports that and `directory` is
 * NULL; else through a file in a new 0700 folder under `directory` (NULL: /tmp), removed before
 * this returns. The bytes are read once and not kept. One reference; NULL with SILO_ERROR_LOAD (the
 * driver's own words; `details` may hold a longer text, to be given back by silo_error_clear),
 * _MEMORY, _FAULT, _FORKED. */
struct silo_binary *silo_binary_load(struct silo_gpu_device *device, const void *data, size_t size,
                                     const char *directory, silo_error *error);

/* One function of this process as a binary, whatever the name of the entry: code that is linked in,
 * or that something else has loaded. It must outlive the binary. */
struct silo_binary *silo_binary_at(const void *address, silo_error *error);

/* A module that something else has loaded on a device, in the context that is current now; it must
 * outlive the binary, which does not unload it. SILO_ERROR_LOAD where that context is not the
 * device's primary one, in which launches are made. */
struct silo_binary *silo_binary_of_module(struct silo_gpu_device *device, void *module,
                                          silo_error *error);

void silo_binary_retain(struct silo_binary *binary);
void silo_binary_release(struct silo_binary *binary); /* NULL is allowed */

/* In a child made by fork: the lock that a thread of the parent may hold. */
void silo_gpu_retired_renew(void);

/* Remember that a launch on `stream` (not the null stream) is being captured, if it is: before each
 * launch on a GPU. */
void silo_binary_launched_on(struct silo_binary *binary, void *stream);

/* Fill `function` (whose launch parameters the caller has set: block, cluster, shared_bytes,
 * counts_blocks, scratch, cooperative, pdl, cpu_*) with handle, device, memory_type, per_program,
 * grid_limit and attributes, for the symbol `entry`. `kernel` is for messages, and on a CPU kept as
 * function->name: it must live as long. Checks the launch's needs against the device and the code:
 * -1 with SILO_ERROR_LIMIT (shared memory, threads, blocks, clusters, cooperative, PDL), _LOAD (no
 * such kernel, not a function), _FAULT, _MEMORY. The function is good as long as the binary. */
int silo_binary_function(struct silo_binary *binary, const char *kernel, const char *entry,
                         struct silo_function *function, silo_error *error);

/* Threads of a block as launch info has them, checked: SILO_ERROR_LIMIT where the struct does not
 * hold them, which no driver would take. */
int silo_function_set_block(struct silo_function *function, const char *kernel,
                            const int64_t block[3], silo_error *error);

/* More than any driver accepts: the limit is 32,764 bytes. */
#define SILO_MOST_PLACES 32768

/* The parameters that a launch of the function hands over, as the driver states them: their number,
 * of which up to `room` are written. -1: the driver does not state them (a CPU, HIP, CUDA
 * before 12.4). */
int64_t silo_binary_places(const struct silo_binary *binary, const struct silo_function *function,
                           struct silo_parameter_place *places, size_t room);

#endif
