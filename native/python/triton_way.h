/* A launch of a Triton program as Triton sees it: whether anything that decides a launch has
 * changed since the last check, the device and stream of the launch, and Triton's own way for
 * launches that are not served here.
 *
 * A situation is immutable. Python makes a new one when something that it watches has changed. */
#ifndef SILO_TRITON_WAY_H
#define SILO_TRITON_WAY_H

#include "frame.h"
#include "launcher.h"

/* A member of a dictionary that has to be the very object that it was. */
struct silo_watched {
    PyObject *dict, *name; /* owned */
    PyObject *value;       /* owned; NULL: none before */
};

/* A list or a dictionary that has to have this number of members. */
struct silo_watched_size {
    PyObject *container; /* owned */
    Py_ssize_t size;
    bool is_list;
};

struct silo_situation {
    PyObject_HEAD struct silo_watched *watched; /* owned */
    struct silo_watched_size *sizes;            /* owned */
    Py_ssize_t watched_count, size_count;
    PyObject *get_device, *get_stream; /* owned; NULL: one device, the null stream */
    PyObject *enter, *leave;           /* owned: Triton's hooks of launches; NULL: without hooks */
    PyObject *allocate;                /* owned: allocate(bytes, alignment, kind, index, stream) ->
                                          (owner, address), by Triton's allocator */
    bool torch_stream;                 /* torch's C function gives what get_stream gives */
    bool torch_device;                 /* get_device is torch's: 0 if there is one device */
    bool blocked;                      /* every launch goes through Triton */
    int32_t memory_type;               /* DLPack's, of the devices that launches go to */
    uint32_t epoch;                    /* a number for all that is part of Triton's key */
    uint64_t passed;                   /* launches that went through Triton while blocked */
};

/* One Triton kernel: the entry of its function's dictionary while its launches are served. */
struct silo_triton_kernel {
    PyObject_HEAD PyObject *function; /* borrowed: the function holds this */
    struct silo_launcher *launcher;   /* owned; NULL: every launch goes through Triton */
    PyObject *hooks;            /* owned list: if it is not empty, a launch goes through Triton */
    PyObject *devices, *caches; /* owned dicts: Triton's own, by device, and of the kernels
                                   that were compiled for the last one */
    PyObject *globals;          /* owned dict, of (value, dictionary) by (name, id) */
    PyObject *seen;             /* owned list: the values that were found unchanged */
    PyObject *changed; /* owned: called if a global has changed; NULL: Triton's own run raises the
                          error */
    Py_ssize_t device_count, cached; /* their sizes when the guard last learnt */
    uint64_t launches;               /* launches that the guard served */
    uint64_t own_launches;           /* launches that went through Triton */
    PyObject *reasons;               /* owned dict: launches through Triton by reason, but for
                                        the first of each kind */
    PyObject *told;                  /* owned: told(reason) is called once for each reason */
    PyObject *refused; /* owned: why every launch goes through Triton; NULL if `launcher` is set */
    struct silo_triton_kernel *of; /* owned: where launches are counted, of a compiled kernel the
                                      function's; NULL: here */
};

/* One call as it was made. */
struct silo_triton_call {
    struct silo_triton_kernel *kernel;
    PyObject *function;
    PyObject *const *arguments;
    Py_ssize_t positional;
    PyObject *names; /* NULL: none */
    PyObject *grid;  /* of k[grid]; NULL: named among the arguments */
    PyObject *named; /* borrowed: grid= among the arguments; NULL: k[grid] */
    PyObject *dims;  /* owned: the result of a grid function, for hooks; NULL: none was called */
    const struct silo_situation *situation;
    int32_t device;
    bool compiled; /* `function` is a compiled kernel: compiled[grid](...) */
    bool went;     /* Triton's own way, or to Python, which may have: never a second time */
    void *stream;
};

extern PyTypeObject *silo_situation_type;
extern struct silo_situation *silo_situation; /* owned; NULL: nothing is served */

/* Triton's run, whatever its arguments; owned. */
extern PyObject *silo_triton_run;

/* Triton's __getitem__ of compiled kernels; owned. */
extern PyObject *silo_triton_compiled;

/* The counters of a kernel's launches. */
SILO_INLINE struct silo_triton_kernel *silo_triton_counted(struct silo_triton_kernel *kernel) {
    return kernel->of != NULL ? kernel->of : kernel;
}

/* Launch as Triton does; Triton's result, a new reference, or NULL with its exception set. Counted
 * by `reason`, a str; NULL: nothing is launched, or it is the first launch of a kind. */
PyObject *silo_triton_own_way(struct silo_triton_call *call, PyObject *reason);

/* The same with the reason as text, which is ASCII. */
PyObject *silo_triton_own_way_for(struct silo_triton_call *call, const char *reason);

/* The same for a kind of call that Silo has refused: `entry` is the text of the reason, or holds
 * it.
 */
PyObject *silo_triton_left(struct silo_triton_call *call, PyObject *entry);

/* The same for a call that raised before anything was launched, whose exception is dropped.
 * Parameter `failed` was not read; -1: something else failed. */
PyObject *silo_triton_left_unread(const struct silo_plan *plan, const struct silo_inputs *inputs,
                                  int32_t failed);

/* Call Triton's enter hook for a launch with the metadata that Triton makes for it: the metadata, a
 * new reference, or NULL with an exception set. `tag` is Triton's compiled kernel, but in a call of
 * a compiled kernel. */
PyObject *silo_triton_enter(struct silo_triton_call *call, PyObject *tag,
                            PyObject *const *arguments, int32_t count, const int64_t dims[3]);

/* Call the exit hook with that metadata after a launch that was made. -1 with an exception set. */
int silo_triton_leave(const struct silo_triton_call *call, PyObject *metadata);

/* The same through another run, which is bound to the function. */
PyObject *silo_triton_by(PyObject *run, const struct silo_triton_call *call);

/* The present situation (a new reference), read anew if something has changed; NULL with an
 * exception set. */
struct silo_situation *silo_situation_now(void);

/* Device and stream of a call. -1 with an exception set. */
int silo_triton_place(struct silo_triton_call *call);

/* Whether every global that the kernel's code was compiled with is unchanged. */
bool silo_triton_globals_hold(const struct silo_triton_kernel *kernel);

/* The guard has no entry for a call: call Python. The object that serves calls of this kind from
 * now on (a new reference): a Binding, or any other object if Triton serves them; NULL with an
 * exception set, or without one if nothing is kept. `*result` is the call's result if Python
 * launched (a new reference), else NULL. */
PyObject *silo_triton_miss(struct silo_launcher *self, const struct silo_inputs *inputs,
                           const struct silo_grid_source *grid, struct silo_frame *frame,
                           uint64_t hash, PyObject **result);

/* triton_serve(run, notice), triton_situation(situation): functions of the module. */
PyObject *silo_py_triton_serve(PyObject *module, PyObject *args);
PyObject *silo_py_triton_situation(PyObject *module, PyObject *situation);

int silo_triton_way_init(PyObject *module); /* TritonSituation */

#endif
