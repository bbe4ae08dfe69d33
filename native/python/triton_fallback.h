/* The part of a launch of a Triton program that depends on Triton: whether anything that decides a
 * launch has changed since the last check, the device and stream of the launch, and launches that
 * Triton itself makes because Silo does not serve them.
 *
 * The settings (TritonSituation in Python) never change; Python makes a new object when something
 * that the old one watches has changed. */
#ifndef SILO_TRITON_FALLBACK_H
#define SILO_TRITON_FALLBACK_H

#include "frame.h"
#include "launcher.h"

/* A member of a dictionary that must still be the same object. */
struct silo_watched {
    PyObject *dict, *name; /* owned */
    PyObject *value;       /* owned; NULL if the member was missing */
};

/* A list or a dictionary that must still have `size` members. */
struct silo_watched_size {
    PyObject *container; /* owned */
    Py_ssize_t size;
    bool is_list;
};

/* The settings that all launches of Triton programs share: Triton's hooks and allocator, and the
 * functions that give the device and the stream. Valid while the watched members and sizes are
 * unchanged. */
struct silo_triton_settings {
    PyObject_HEAD struct silo_watched *watched; /* owned */
    struct silo_watched_size *sizes;            /* owned */
    Py_ssize_t watched_count, size_count;
    PyObject *get_device, *get_stream; /* owned; NULL for device 0 and the null stream */
    PyObject *enter, *leave;           /* owned: Triton's launch hooks, or NULL */
    PyObject *allocate;  /* owned: allocate(bytes, alignment, kind, index, stream) -> (owner,
                            address), which uses Triton's allocator */
    bool torch_stream;   /* torch's C function returns the same stream as get_stream */
    bool torch_device;   /* get_device is torch's, so it returns 0 if there is only one device */
    bool blocked;        /* Triton makes every launch */
    int32_t memory_type; /* DLPack device type of the devices that launches use */
    uint32_t epoch;  /* a number for the values of all settings that are part of Triton's key: equal
                        values have the same number */
    uint64_t passed; /* number of launches that Triton made while blocked */
};

/* A Triton kernel whose launches are served; an entry of its function's dictionary. */
struct silo_triton_kernel {
    PyObject_HEAD PyObject *function; /* borrowed, because the function holds this object */
    struct silo_launcher *launcher;   /* owned; NULL if Triton makes every launch */
    /* Owned list of the hooks that Triton runs before a launch; unless the list is empty, Triton
     * makes the launch. */
    PyObject *hooks;
    PyObject *devices, *caches; /* owned dicts of Triton: its caches by device, and the kernels
                                   compiled for the last device */
    PyObject *globals;          /* owned dict: maps (name, id) to (value, dictionary) */
    PyObject *values;  /* owned list: the latest values that were equal to Triton's copies */
    PyObject *changed; /* owned: called if a global has changed; NULL if Triton's own run raises the
                          error */
    Py_ssize_t device_count, cached; /* lengths of `devices` and `caches` when last read */
    uint64_t launches;               /* number of launches that the guard served */
    uint64_t own_launches;           /* number of launches that Triton made */
    PyObject *reasons;   /* owned dict: maps each reason why Triton made launches to their number; a
                            launch that Triton makes because the guard code is new is not counted */
    PyObject *on_reason; /* owned callable: on_reason(reason) is called once for each reason */
    /* Owned: the reason why Triton makes every launch; NULL if `launcher` is set. */
    PyObject *refused;
    struct silo_triton_kernel *of; /* owned: for a compiled kernel, the TritonKernel of its
                                      function, which counts the launches of both; else NULL */
};

/* One call of a Triton program, with its arguments as given. */
struct silo_triton_call {
    struct silo_triton_kernel *kernel;
    PyObject *function;
    PyObject *const *arguments;
    Py_ssize_t positional;
    PyObject *names; /* NULL if there are none */
    PyObject *grid;  /* the grid of k[grid]; NULL if it is a named argument */
    PyObject *named; /* borrowed: the grid if it is a named argument, else NULL */
    PyObject *dims;  /* owned: the grid function's result, for hooks; NULL if no grid function was
                        called */
    const struct silo_triton_settings *settings;
    int32_t device;
    bool compiled;     /* `function` is a compiled kernel, and the call is compiled[grid](...) */
    bool may_have_run; /* Triton may have made the call already, itself or through Python, so it
                  must not be repeated */
    void *stream;
};

extern PyTypeObject *silo_triton_settings_type;
extern struct silo_triton_settings
    *silo_triton_settings; /* owned; NULL if no launches are served */

/* Triton's own `run`; owned. */
extern PyObject *silo_triton_run;

/* Triton's own `__getitem__` of compiled kernels; owned. */
extern PyObject *silo_triton_compiled;

/* Returns the kernel that counts the launches of `kernel`. */
SILO_INLINE struct silo_triton_kernel *silo_triton_counted(struct silo_triton_kernel *kernel) {
    return kernel->of != NULL ? kernel->of : kernel;
}

/* Lets Triton make the call. Returns Triton's result, a new reference, or NULL with its exception
 * set. Counts the launch by `reason`, a str; `reason` is NULL for a warmup, which launches nothing,
 * and if Silo serves no launches. */
PyObject *silo_triton_fall_back(struct silo_triton_call *call, PyObject *reason);

/* Lets Triton make the call; `reason` is ASCII text. */
PyObject *silo_triton_fall_back_for(struct silo_triton_call *call, const char *reason);

/* Lets Triton make a call whose guard key Silo has refused. `entry` is the reason, or an object
 * with an attribute `reason`. */
PyObject *silo_triton_fall_back_refused(struct silo_triton_call *call, PyObject *entry);

/* Lets Triton make a call for which an exception was raised before anything was launched; the
 * exception is dropped. `failed` is the number of the parameter that could not be read, or -1. */
PyObject *silo_triton_fall_back_unread(const struct silo_plan *plan,
                                       const struct silo_inputs *inputs, int32_t failed);

/* Calls Triton's enter hook for a launch, with the metadata that Triton makes for it. Returns the
 * metadata, a new reference, or NULL with an exception set. `tag` is Triton's compiled kernel; it
 * is not used for a call of a compiled kernel. */
PyObject *silo_triton_enter(struct silo_triton_call *call, PyObject *tag,
                            PyObject *const *arguments, int32_t count, const int64_t dims[3]);

/* Calls Triton's exit hook with the metadata after a launch that was made; -1 with an exception
 * set. */
int silo_triton_leave(const struct silo_triton_call *call, PyObject *metadata);

/* Makes the call through the function `run`, which is already bound to the Triton function; returns
 * its result. */
PyObject *silo_triton_by(PyObject *run, const struct silo_triton_call *call);

/* Returns the settings of the launches that are made now (a new reference): the last settings, or
 * new ones if a watched member or size has changed. NULL with an exception set. */
struct silo_triton_settings *silo_triton_settings_now(void);

/* Finds the device and the stream of a call; -1 with an exception set. */
int silo_triton_find_queue(struct silo_triton_call *call);

/* Returns whether all globals that the kernel's code was compiled with are unchanged. */
bool silo_triton_globals_hold(const struct silo_triton_kernel *kernel);

/* Asks Python about a call for which the guard lacks an entry. Returns the object that serves such
 * calls from now on (a new reference): a Binding, or any other object if Triton makes them. Returns
 * NULL with an exception set, or without one if nothing is kept. If Python already launched,
 * `*result` is the result of the call (a new reference), else NULL. */
PyObject *silo_triton_miss(struct silo_launcher *self, const struct silo_inputs *inputs,
                           const struct silo_grid_source *grid, struct silo_frame *frame,
                           uint64_t hash, PyObject **result);

/* Implement the module's functions triton_serve(run, notice) and triton_situation(situation). */
PyObject *silo_py_triton_serve(PyObject *module, PyObject *args);
PyObject *silo_py_triton_settings(PyObject *module, PyObject *settings);

int silo_triton_fallback_init(PyObject *module); /* adds the type TritonSituation */

#endif
