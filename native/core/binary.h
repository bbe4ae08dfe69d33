/* Loaded code (a shared object mapped by the CPU driver, or a module of a GPU driver on one device)
 * and the functions in it.
 *
 * A binary is reference-counted: each owner of a binary, or of a function of it, holds a reference.
 * If the last reference is released while launches may still run on a GPU, the binary is retired:
 * the next load or release on that device unloads it, once the device has finished its work. The
 * functions are thread-safe. Loading and releasing a binary may take long or wait for the device,
 * so Python calls these functions without holding the GIL. */
#ifndef SILO_BINARY_H
#define SILO_BINARY_H

#include "device.h"
#include "device_code.h"
#include "driver.h"
#include "error.h"

struct silo_binary {
    const struct silo_driver *driver;
    struct silo_gpu_device *device; /* NULL for the CPU */
    void *handle; /* owned: the driver's module, or the shared object; NULL if `address` is set */
    const void *address; /* a function of this process, which its owner keeps loaded */
    void *image;         /* owned: the code, if a GPU's driver may read it later; else NULL */
    int borrowed;        /* `handle` belongs to another library and is not unloaded here */
    uint32_t references; /* atomic */
    /* Set (relaxed, never cleared) once a launch of this binary was captured into a graph. The
     * graph holds no reference to the binary, so a captured binary stays loaded until the process
     * ends. */
    int captured;
};

/* Loads code (cubin, PTX, hsaco) on a device, or a shared object into this process if `device` is
 * NULL. A shared object is mapped from memory if the system supports that and `directory` is NULL.
 * Otherwise it is written to a file in a new folder of mode 0700 under `directory` (NULL: /tmp);
 * the folder is removed before this function returns. `data` need not outlive the call. Returns a
 * binary with one reference, or NULL with SILO_ERROR_LOAD (the driver's message; if `details` holds
 * a longer text, free it with silo_error_clear), _MEMORY, _FAULT or _FORKED. */
struct silo_binary *silo_binary_load(struct silo_gpu_device *device, const void *data, size_t size,
                                     const char *directory, silo_error *error);

/* Makes a binary of one function of this process, which is linked into the program or was loaded by
 * other code. The function must outlive the binary. silo_binary_function then ignores the name
 * `entry`. */
struct silo_binary *silo_binary_at(const void *address, silo_error *error);

/* Makes a binary of a module that other code has loaded on a device, in the current context. The
 * module must outlive the binary, which does not unload it. Returns NULL with SILO_ERROR_LOAD if
 * the current context is not the device's primary context, in which Silo launches. */
struct silo_binary *silo_binary_of_module(struct silo_gpu_device *device, void *module,
                                          silo_error *error);

void silo_binary_retain(struct silo_binary *binary);
void silo_binary_release(struct silo_binary *binary); /* NULL is allowed */

/* Initializes the lock again in a child made by fork(), because a thread of the parent may have
 * held it. */
void silo_gpu_retired_renew(void);

/* If `stream` (not the null stream) is being captured, remembers that a graph uses the binary.
 * Called for each launch on a GPU. */
void silo_binary_launched_on(struct silo_binary *binary, void *stream);

/* Finds the symbol `entry` and fills handle, device, memory_type, per_program, grid_limit and
 * attributes of `function`. The caller has already set the launch parameters in `function`: block,
 * cluster, shared_bytes, counts_blocks, scratch, cooperative, pdl, cpu_*. `kernel` is used in
 * messages; on a CPU, function->name points to it, so that `kernel` must live as long as
 * `function`. Checks what the launch needs against the device and the code. On failure returns -1
 * with SILO_ERROR_LIMIT (shared memory, threads, blocks, clusters, cooperative, PDL), _LOAD (no
 * such kernel, not a function), _FAULT or _MEMORY. The function can be used as long as the binary
 * lives. */
int silo_binary_function(struct silo_binary *binary, const char *kernel, const char *entry,
                         struct silo_function *function, silo_error *error);

/* Sets the threads of a block from the launch info. Returns -1 with SILO_ERROR_LIMIT if a value
 * does not fit the struct, which means that no driver would accept the value. */
int silo_function_set_block(struct silo_function *function, const char *kernel,
                            const int64_t block[3], silo_error *error);

/* The most parameters that silo_binary_places reads. Drivers accept fewer, because the
 * parameters of a launch may have at most 32,764 bytes. */
#define SILO_MOST_PLACES 32768

/* Reads the offset and size of each parameter of the function from the driver. Writes the first
 * `room` of them to `places` and returns the total number, or -1 if the driver cannot report them
 * (a CPU, HIP, CUDA before 12.4). */
int64_t silo_binary_places(const struct silo_binary *binary, const struct silo_function *function,
                           struct silo_parameter_place *places, size_t room);

#endif
