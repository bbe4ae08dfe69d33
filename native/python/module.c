/* silo._native: module functions and initialisation. It supports one interpreter and single-phase
 * initialisation, because the table of types and the CPU's thread pool exist once in a process. */
#include "allocator.h"
#include "arguments.h"
#include "attributes.h"
#include "binding.h"
#include "bound.h"
#include "buffer.h"
#include "bundle_binding.h"
#include "bundle_choice.h"
#include "bundle_type.h"
#include "capsule.h"
#include "code.h"
#include "codec.h"
#include "cpu_crash.h"
#include "cpu_level.h"
#include "cpu_pace.h"
#include "cpu_pick.h"
#include "cpu_pool.h"
#include "cpu_quota.h"
#include "cpu_team.h"
#include "cuda_dict.h"
#include "errors.h"
#include "expression.h"
#include "flight.h"
#include "functions.h"
#include "gpu_device.h"
#include "gpu_forked.h"
#include "gpu_functions.h"
#include "gpu_memory.h"
#include "gpu_pinned.h"
#include "gpu_timing.h"
#include "hooks.h"
#include "launcher_type.h"
#include "library.h"
#include "loaded.h"
#include "map_cache.h"
#include "operator_call.h"
#include "placement.h"
#include "plan_object.h"
#include "recorder.h"
#include "scalars.h"
#include "stand_in.h"
#include "stream.h"
#include "torch_shim.h"
#include "triton_bound.h"
#include "triton_class.h"
#include "triton_decision.h"
#include "triton_kernel.h"
#include "triton_run.h"
#include "triton_tuned.h"
#include "xla_module.h"

#include <errno.h>

static PyObject *py_cpu_threads(PyObject *module, PyObject *args) {
    (void)module;
    int count = 0, error = 0;
    if (!PyArg_ParseTuple(args, "|i", &count))
        return NULL;
    if (PyTuple_Size(args) == 1) {
        Py_BEGIN_ALLOW_THREADS error = silo_cpu_set_threads(count);
        Py_END_ALLOW_THREADS if (error == EINTR) return NULL; /* a signal handler has raised */
        if (error != 0)
            return PyErr_Format(PyExc_ValueError,
                                "the CPU runs kernels on 1 to 1024 threads, not %d", count);
    }
    return PyLong_FromLong(silo_cpu_threads());
}

static PyObject *py_cpu_pin_threads(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    bool pinned;
    Py_BEGIN_ALLOW_THREADS pinned = silo_cpu_pin_threads();
    Py_END_ALLOW_THREADS return PyBool_FromLong(pinned);
}

static PyObject *py_cpu_short_handed(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return PyLong_FromUnsignedLongLong(silo_cpu_short_handed());
}

static PyObject *py_cpu_spin(PyObject *module, PyObject *args) {
    (void)module;
    int microseconds;
    if (!PyArg_ParseTuple(args, "i", &microseconds))
        return NULL;
    if (silo_cpu_set_spin(microseconds) != 0)
        return PyErr_Format(PyExc_ValueError, "threads spin for 0 to 100000 microseconds, not %d",
                            microseconds);
    Py_RETURN_NONE;
}

static PyObject *py_cpu_use_pool(PyObject *module, PyObject *args) {
    static const char *const names[] = {"auto", "own", "openmp"};
    const char *name;
    (void)module;
    if (!PyArg_ParseTuple(args, "s", &name))
        return NULL;
    for (int kind = 0; kind < 3; kind++)
        if (strcmp(name, names[kind]) == 0) {
            silo_cpu_use_pool((enum silo_cpu_pool_kind)kind);
            Py_RETURN_NONE;
        }
    return PyErr_Format(PyExc_ValueError, "the pool is auto, own or openmp, not '%s'", name);
}

static PyObject *py_cpu_level(PyObject *module, PyObject *unused) {
    const char *level = silo_cpu_level();
    (void)module, (void)unused;
    return level != NULL ? PyUnicode_FromString(level) : Py_NewRef(Py_None);
}

static PyObject *py_cpu_state(PyObject *module, PyObject *unused) {
    static const char *const runtimes[] = {"none", "one", "several"};
    (void)module, (void)unused;
    const enum silo_cpu_runtime runtime = silo_cpu_team_find();
    const int quota = silo_cpu_quota("");
    PyObject *picks = PyDict_New();
    for (int reason = 0; picks != NULL && reason < SILO_CPU_REASONS; reason++) {
        PyObject *count =
            PyLong_FromUnsignedLongLong(silo_cpu_picked((enum silo_cpu_reason)reason));
        if (count == NULL || PyDict_SetItemString(picks, silo_cpu_reason_names[reason], count) != 0)
            Py_CLEAR(picks);
        Py_XDECREF(count);
    }
    if (picks == NULL)
        return NULL;
    return Py_BuildValue("{sisisisssssisisisN}", "threads", silo_cpu_threads(), "affinity",
                         silo_cpu_affinity(), "quota", quota, "runtimes", runtimes[runtime],
                         "runtime", silo_cpu_team_path(), "team", silo_cpu_team_size(), "spin",
                         (int)(silo_cpu_spinning() / 1000), "look",
                         (int)(silo_cpu_looking() / 1000), "picks", picks);
}

static PyObject *py_set_type_hook(PyObject *module, PyObject *hook) {
    (void)module;
    if (hook != Py_None && !PyCallable_Check(hook))
        return PyErr_Format(PyExc_TypeError, "a hook is a callable or None");
    silo_set_type_hook(hook);
    Py_RETURN_NONE;
}

static PyObject *py_torch_open(PyObject *module, PyObject *args) {
    (void)module;
    const char *library;
    PyObject *tensor, *types, *capsule;
    int rocm;
    if (!PyArg_ParseTuple(args, "sOOpO!", &library, &tensor, &capsule, &rocm, &PyTuple_Type,
                          &types))
        return NULL;
    void *handle = PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
    if (handle == NULL)
        return NULL;
    const ptrdiff_t offset = silo_torch_open(library, tensor, handle, rocm != 0);
    for (Py_ssize_t i = 0; offset != 0 && i < PyTuple_Size(types); i++) {
        PyObject *type = PyTuple_GetItem(types, i);
        if (!PyType_Check(type))
            return PyErr_Format(PyExc_TypeError, "not a type: %R", type);
        if (silo_adapt_torch((PyTypeObject *)type) != 0)
            return NULL;
    }
    return PyLong_FromSsize_t(offset);
}

static PyObject *py_torch_close(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    silo_unadapt_torch();
    silo_torch_close();
    Py_RETURN_NONE;
}

static PyObject *py_torch_probe(PyObject *module, PyObject *tensors) {
    (void)module;
    PyObject *items[64]; /* borrowed from the tuple */
    if (!PyTuple_Check(tensors) || PyTuple_Size(tensors) > 64)
        return PyErr_Format(PyExc_TypeError, "up to 64 tensors in a tuple");
    const Py_ssize_t count = PyTuple_Size(tensors);
    for (Py_ssize_t i = 0; i < count; i++) {
        items[i] = PyTuple_GetItem(tensors, i);
        const struct silo_adapter *adapter = silo_adapter_of(Py_TYPE(items[i]));
        if (adapter == NULL || adapter->kind != SILO_ADAPT_TORCH)
            return PyErr_Format(PyExc_TypeError, "no tensor that is read through torch: %R",
                                items[i]);
    }
    silo_torch_probe(items, count);
    return Py_BuildValue("(nnn)", (Py_ssize_t)silo_torch.dtype_offset,
                         (Py_ssize_t)silo_torch.device_offset, (Py_ssize_t)silo_torch.rank_offset);
}

static PyObject *py_torch_probe_keys(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *pairs, *items[64]; /* borrowed from the tuples */
    unsigned long long other_values;
    uint64_t keys[64];
    if (!PyArg_ParseTuple(args, "O!K", &PyTuple_Type, &pairs, &other_values))
        return NULL;
    const Py_ssize_t count = PyTuple_Size(pairs);
    if (count > 64)
        return PyErr_Format(PyExc_TypeError, "up to 64 tensors");
    for (Py_ssize_t i = 0; i < count; i++) {
        unsigned long long word;
        if (!PyArg_ParseTuple(PyTuple_GetItem(pairs, i), "OK", &items[i], &word))
            return NULL;
        const struct silo_adapter *adapter = silo_adapter_of(Py_TYPE(items[i]));
        if (adapter == NULL || adapter->kind != SILO_ADAPT_TORCH)
            return PyErr_Format(PyExc_TypeError, "no tensor that is read through torch: %R",
                                items[i]);
        keys[i] = word;
    }
    silo_torch_probe_keys(items, keys, count, other_values);
    return PyLong_FromSsize_t((Py_ssize_t)silo_torch.keys_offset);
}

static PyObject *py_torch_open_stream(PyObject *module, PyObject *library) {
    (void)module;
    const char *path = PyUnicode_AsUTF8AndSize(library, NULL);
    return path ? PyBool_FromLong(silo_torch_open_stream(path)) : NULL;
}

static PyObject *py_set_stream_source(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *type, *source;
    if (!PyArg_ParseTuple(args, "O!O", &PyType_Type, &type, &source))
        return NULL;
    if (!PyCallable_Check(source))
        return PyErr_Format(PyExc_TypeError, "a stream source is a callable");
    if (silo_adapter_set_stream((PyTypeObject *)type, source) != 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *py_set_array_reader(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *type, *source;
    if (!PyArg_ParseTuple(args, "O!O", &PyType_Type, &type, &source))
        return NULL;
    if (!PyCallable_Check(source))
        return PyErr_Format(PyExc_TypeError, "a stream source is a callable");
    if (silo_adapter_set_reader((PyTypeObject *)type, source) != 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *py_set_driver_opener(PyObject *module, PyObject *opener) {
    (void)module;
    if (!PyCallable_Check(opener))
        return PyErr_Format(PyExc_TypeError, "an opener is a callable");
    silo_set_driver_opener(opener);
    Py_RETURN_NONE;
}

static PyObject *py_new_generation(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    __atomic_add_fetch(&silo_generation, 1, __ATOMIC_RELAXED);
    Py_RETURN_NONE;
}

static PyObject *py_set_allocator(PyObject *module, PyObject *allocate) {
    (void)module;
    if (silo_allocator_set(allocate) != 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *py_set_hooks(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *enter, *leave;
    int each = 0;
    if (!PyArg_ParseTuple(args, "OO|p", &enter, &leave, &each) ||
        silo_hooks_set(enter, leave, each != 0) != 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *py_adapter(PyObject *module, PyObject *type) {
    (void)module;
    static const char *const names[] = {
        [SILO_ADAPT_NOTHING] = "nothing",       [SILO_ADAPT_TORCH] = "torch",
        [SILO_ADAPT_EXCHANGE] = "exchange",     [SILO_ADAPT_BUFFER] = "buffer",
        [SILO_ADAPT_DLPACK] = "dlpack",         [SILO_ADAPT_DATA_PTR] = "data_ptr",
        [SILO_ADAPT_CUDA_DICT] = "cuda_dict",   [SILO_ADAPT_INT] = "int",
        [SILO_ADAPT_FLOAT] = "float",           [SILO_ADAPT_BOOL] = "bool",
        [SILO_ADAPT_DESCRIPTOR] = "descriptor",
    };
    if (!PyType_Check(type))
        return PyErr_Format(PyExc_TypeError, "not a type: %R", type);
    const struct silo_adapter *adapter = silo_adapter_of((PyTypeObject *)type);
    return adapter ? PyUnicode_FromString(names[adapter->kind]) : NULL;
}

static PyObject *py_read(PyObject *module, PyObject *object) {
    (void)module;
    struct silo_view view;
    struct silo_shape shape;
    Py_buffer buffer;
    PyObject *objects[8];
    struct silo_holds holds = {0, 0, &buffer, objects};
    const struct silo_adapter *adapter = silo_adapter_of(Py_TYPE(object));
    PyObject *result = NULL;
    if (adapter != NULL && silo_view_read(object, adapter, &view, &holds) == 0) {
        int ndim = silo_shape_read(object, adapter, &shape) == 0 ? shape.ndim : -1;
        PyErr_Clear();
        PyObject *sizes = PyTuple_New(ndim < 0 ? 0 : ndim),
                 *strides = PyTuple_New(ndim < 0 ? 0 : ndim);
        for (int i = 0; i < ndim && sizes != NULL && strides != NULL; i++) {
            PyTuple_SetItem(sizes, i, PyLong_FromLongLong(shape.sizes[i]));
            PyTuple_SetItem(strides, i, PyLong_FromLongLong(shape.strides[i]));
        }
        if (sizes != NULL && strides != NULL && !PyErr_Occurred())
            result = Py_BuildValue("(Kiii(ii)OO)", (unsigned long long)view.address,
                                   (int)view.dtype.code, (int)view.dtype.bits, (int)view.readonly,
                                   (int)view.device_type, (int)view.device_id, sizes, strides);
        Py_XDECREF(sizes);
        Py_XDECREF(strides);
    }
    silo_holds_release(&holds);
    return result;
}

/* Returns the handle of a stream, for code that a library runs (library.h): such code receives the
 * caller's stream object or None, not a handle. */
static PyObject *py_stream_handle(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *kernel, *stream_object, *array, *name;
    int type, index;
    void *stream = NULL;
    if (!PyArg_ParseTuple(args, "UOOii", &kernel, &stream_object, &array, &type, &index))
        return NULL;
    if (stream_object != Py_None) {
        name = PyUnicode_FromString("stream");
        const int bad = name ? silo_stream_read(kernel, name, stream_object, &stream) : -1;
        Py_XDECREF(name);
        return bad ? NULL : PyLong_FromVoidPtr(stream);
    }
    const struct silo_adapter *adapter = NULL;
    if (array != Py_None && (adapter = silo_adapter_of(Py_TYPE(array))) == NULL)
        return NULL;
    if (silo_stream_current(adapter, type, index, &stream) != 0)
        return NULL;
    return PyLong_FromVoidPtr(stream);
}

static PyMethodDef methods[] = {
    {"cpu_pin_threads", py_cpu_pin_threads, METH_NOARGS,
     "cpu_pin_threads() -> bool\n\nPin this thread and the pool's threads to a processor each, if "
     "there "
     "are as many; whether they are."},
    {"cpu_short_handed", py_cpu_short_handed, METH_NOARGS,
     "cpu_short_handed() -> int\n\nHow many launches had fewer threads at work than they called."},
    {"cpu_level", py_cpu_level, METH_NOARGS,
     "cpu_level() -> str | None\n\nThe portable level of this CPU; None below the lowest."},
    {"cpu_threads", py_cpu_threads, METH_VARARGS,
     "cpu_threads(count=...) -> int\n\nSet and return how many threads a CPU launch may use."},
    {"cpu_spin", py_cpu_spin, METH_VARARGS,
     "cpu_spin(microseconds, /)\n\nHow long idle threads look for work before they sleep."},
    {"cpu_use_pool", py_cpu_use_pool, METH_VARARGS,
     "cpu_use_pool(kind, /)\n\nWhose threads run launches: 'auto', 'own' or 'openmp'."},
    {"cpu_state", py_cpu_state, METH_NOARGS,
     "cpu_state() -> dict\n\nThreads, what bounds them, and the OpenMP runtime that is loaded."},
    {"set_type_hook", py_set_type_hook, METH_O,
     "Call this with every argument type seen for the first time."},
    {"torch_open", py_torch_open, METH_VARARGS,
     "torch_open(library, tensor, handle, rocm, types) -> int\n\nRead these types through torch's "
     "C functions; the "
     "offset found, 0 where it does not fit."},
    {"torch_close", py_torch_close, METH_NOARGS, "Read torch tensors through DLPack again."},
    {"torch_probe", py_torch_probe, METH_O,
     "torch_probe(tensors) -> (int, int)\n\nFind where tensors keep dtype and device; 0: not "
     "found."},
    {"torch_probe_keys", py_torch_probe_keys, METH_VARARGS,
     "torch_probe_keys(((tensor, keys), ...), other_values) -> int\n\nFind where tensors keep "
     "their "
     "dispatch keys, and refuse those with one of other_values; 0: not found."},
    {"torch_open_stream", py_torch_open_stream, METH_O,
     "torch_open_stream(library) -> bool\n\nAsk torch for its current stream through this "
     "library."},
    {"set_array_reader", py_set_array_reader, METH_VARARGS,
     "set_array_reader(type, reader)\n\nreader(array) gives (DLPack device type, device index, "
     "dtype, "
     "read-only) of an array without an address, else None."},
    {"set_stream_source", py_set_stream_source, METH_VARARGS,
     "set_stream_source(type, source)\n\nsource(device index) gives the current stream's handle "
     "for "
     "arrays of a type."},
    {"stream_handle", py_stream_handle, METH_VARARGS,
     "stream_handle(kernel, stream, array, type, index) -> int\n\nThe handle of a call's stream; "
     "None: the current one of the array's library on this DLPack device, or torch's."},
    {"set_driver_opener", py_set_driver_opener, METH_O,
     "Call this once when a call may concern a GPU whose driver is not open."},
    {"new_generation", py_new_generation, METH_NOARGS,
     "Let every launcher ask its on_miss again, for what it was told may have changed."},
    {"set_scratch_allocator", py_set_allocator, METH_O,
     "allocate(bytes, alignment, kind, index, stream) -> (owner, address), or None."},
    {"set_hooks", py_set_hooks, METH_VARARGS,
     "set_hooks(enter, exit, each=False)\n\nenter(kernel, arguments, config, grid, stream, device, "
     "effects) "
     "-> token before and exit(token) after each launch; None, None: off. With each, plans do not "
     "replay: their function runs."},
    {"triton_methods", silo_py_triton_methods, METH_VARARGS,
     "triton_methods(kind, first_use) -> (run, __getitem__)\n\nWhat launches functions of a class "
     "through Silo; first_use(function) gives its TritonKernel."},
    {"triton_compiled", silo_py_triton_compiled, METH_VARARGS,
     "triton_compiled(kind, getitem, first_launch) -> __getitem__\n\nWhat launches compiled "
     "kernels "
     "by hand."},
    {"triton_tuners", silo_py_triton_tuners, METH_VARARGS,
     "triton_tuners(autotuner, run, heuristics, run, members, decided) -> (run, __getitem__, run, "
     "__getitem__)\n\nWhat launches through Triton's decorators of these classes."},
    {"triton_serve", silo_py_triton_serve, METH_VARARGS,
     "triton_serve(run, notice)\n\nTriton's own run, and what makes the situation anew."},
    {"triton_situation", silo_py_triton_settings, METH_O,
     "What decides launches now; None: it is asked for at the next one."},
    {"adapter", py_adapter, METH_O, "How arguments of a type are read."},
    {"read", py_read, METH_O,
     "(address, code, bits, readonly, (device type, index), sizes, strides) of an array."},
    {"rank_variants", silo_py_rank_variants, METH_VARARGS, silo_py_rank_variants_doc},
    {"decide_variants", silo_py_decide_variants, METH_VARARGS, silo_py_decide_variants_doc},
    {"held", silo_py_held, METH_VARARGS, silo_py_held_doc},
    {"bind_variant", silo_py_bind_variant, METH_VARARGS, silo_py_bind_variant_doc},
    {"runs_on", silo_py_runs_on, METH_VARARGS, silo_py_runs_on_doc},
    {"set_codec", silo_py_set_codec, METH_O, silo_py_set_codec_doc},
    {"evaluate", silo_py_evaluate, METH_VARARGS, silo_py_evaluate_doc},
    {"tabulate", silo_py_tabulate, METH_VARARGS, silo_py_tabulate_doc},
    {"bucket", silo_py_bucket, METH_O, "The bucket of one integer."},
    {"generate", silo_py_generate, METH_VARARGS, silo_py_generate_doc},
    {"narrow", silo_py_narrow, METH_VARARGS,
     "narrow(value, name) -> int\n\nBits of the nearest float16 or bfloat16."},
    {"dtype_named", silo_py_dtype_named, METH_O,
     "(code, bits, name, format) of a dtype name, or None."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "silo._native",
    "The native part of Silo: arguments, guard, launch.",
    -1,
    methods,
    NULL,
    NULL,
    NULL,
    NULL,
};

static int add_absent(PyObject *module) {
    /* Any object will do, because only its address is compared. */
    silo_absent = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
    return silo_absent ? PyModule_AddObjectRef(module, "ABSENT", silo_absent) : -1;
}

/* Lets Python handle pending signals, as it does in its own waits. Returns whether a handler
 * raised. Called with or without the GIL. */
static bool interrupted(void) {
    const PyGILState_STATE state = PyGILState_Ensure();
    const bool raised = PyErr_CheckSignals() != 0;
    PyGILState_Release(state);
    return raised;
}

static void *let_go(void) {
    return PyEval_SaveThread();
}

static void take_back(void *state) {
    PyEval_RestoreThread(state);
}

/* Gives the CPU's thread pool the functions by which it releases the GIL, handles signals and
 * watches for faults; -1 with an exception set. */
static int connect_pool(void) {
    PyObject *threading = PyImport_ImportModule("threading");
    PyObject *main = threading ? PyObject_CallMethod(threading, "main_thread", NULL) : NULL;
    PyObject *number = main ? PyObject_GetAttrString(main, "ident") : NULL;
    const unsigned long ident = number ? PyLong_AsUnsignedLong(number) : 0;
    Py_XDECREF(number);
    Py_XDECREF(main);
    Py_XDECREF(threading);
    if (PyErr_Occurred())
        return -1;
    silo_cpu_python = (struct silo_cpu_python){
        .begins = silo_cpu_watch_faults,
        .interrupted = interrupted,
        .let_go = let_go,
        .take_back = take_back,
        .main = (pthread_t)ident,
    };
    return 0;
}

PyMODINIT_FUNC PyInit__native(void);

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
#ifdef Py_GIL_DISABLED
    PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#endif
    static bool pool_ready;
    if (!pool_ready && (silo_cpu_pool_init() != 0 || silo_gpu_forked_init() != 0)) {
        PyErr_SetString(PyExc_OSError, "cannot set up the CPU thread pool and what fork() needs");
        Py_DECREF(module);
        return NULL;
    }
    pool_ready = true;
    if (connect_pool() != 0 || silo_errors_init() != 0 || silo_adapters_init() != 0 ||
        silo_attributes_init() != 0 || silo_capsules_init() != 0 || silo_cuda_dict_init() != 0 ||
        silo_arguments_init() != 0 || silo_scalars_init() != 0 || silo_stream_init() != 0 ||
        add_absent(module) != 0 || PyModule_AddFunctions(module, silo_gpu_methods) != 0 ||
        PyModule_AddFunctions(module, silo_recorder_methods) != 0 ||
        PyModule_AddFunctions(module, silo_flight_methods) != 0 ||
        silo_stand_in_init(module) != 0 || silo_plan_object_init(module) != 0 ||
        silo_gpu_device_init() != 0 || silo_code_init(module) != 0 ||
        silo_gpu_memory_init(module) != 0 || silo_gpu_pinned_init(module) != 0 ||
        silo_gpu_timing_init(module) != 0 || silo_library_init(module) != 0 ||
        silo_loaded_init(module) != 0 || silo_binding_init(module) != 0 ||
        silo_descriptor_init() != 0 || silo_tensor_map_init(module) != 0 ||
        silo_buffer_init(module) != 0 || silo_launcher_init(module) != 0 ||
        silo_bound_init(module) != 0 || silo_triton_fallback_init(module) != 0 ||
        silo_triton_class_init() != 0 || silo_triton_bound_init(module) != 0 ||
        silo_triton_run_init(module) != 0 || silo_triton_kernel_init(module) != 0 ||
        silo_triton_tuned_init() != 0 || silo_triton_decision_init() != 0 ||
        silo_operator_call_init(module) != 0 || silo_py_bundle_init(module) != 0 ||
        silo_xla_init(module) != 0 ||
        PyModule_AddIntConstant(module, "MAX_PARAMETERS", SILO_MAX_PARAMETERS) != 0 ||
        PyModule_AddIntConstant(module, "MAX_OPTIONS", SILO_MAX_OPTIONS) != 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
