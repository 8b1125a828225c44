/*
 * module.c: _sgl_pcie, the CPython module on libpar.so.
 *
 * Thin: it turns arguments into those of pcie_allreduce.h and errors into exceptions with the library's text. It knows
 * neither torch nor CUDA; memory and streams are integers. Limited API of 3.10: one file serves every later CPython.
 * libpar.so is opened when the module is, from the folder in which this module is: what was built and verified
 * together is loaded together. The interpreter lock is released where the library may wait for other ranks, that is in
 * creating and closing; not in all_reduce(), which only enqueues.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#ifdef Py_GIL_DISABLED
#error "this module is for CPython with its interpreter lock; a free-threaded build has no stable ABI"
#endif

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "pcie_allreduce.h"

/* --- libpar.so ---------------------------------------------------------------------------------------------------- */

#define PAR_FUNCTIONS(use)                                                                                             \
    use(par_error_name) use(par_last_error) use(par_abi) use(par_version) use(par_algorithm_name) use(par_dtype_name)  \
        use(par_memory_bound) use(par_create) use(par_close) use(par_rank) use(par_world) use(par_all_reduce)          \
            use(par_max_bytes) use(par_set_profile) use(par_choose) use(par_status) use(par_last_report)               \
                use(par_abort)

static struct {
#define DECLARE(name) __typeof__(name) *name;
    PAR_FUNCTIONS(DECLARE)
#undef DECLARE
} par;

/* CPython's slots hold functions as void *; POSIX allows the conversion, ISO C does not. */
#define SLOT(function) __extension__((void *)(function))

static PyObject *Error; /* _sgl_pcie.Error: a failed call; .code is the library's PAR_ERR_ value */

/* A pointer to a function from what dlsym returns; the cast is not ISO C, the copy is. */
static int find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    if (!symbol) {
        PyErr_Format(PyExc_ImportError, "libpar.so has no %s: it is of another build than this module", name);
        return -1;
    }
    memcpy(function, &symbol, sizeof symbol);
    return 0;
}

static int find_all(void *library)
{
#define FIND(name)                                                                                                     \
    if (find(library, #name, &par.name) < 0)                                                                           \
        return -1;
    PAR_FUNCTIONS(FIND)
#undef FIND
    if (par.par_abi() != PAR_ABI) {
        PyErr_Format(PyExc_ImportError, "libpar.so has interface version %d, this module needs %d", par.par_abi(),
                     PAR_ABI);
        return -1;
    }
    return 0;
}

static int open_library(void)
{
    char path[4096];
    Dl_info here;
    const char *slash;
    void *library;
    if (!dladdr((void *)&par, &here) || !(slash = strrchr(here.dli_fname, '/')) ||
        (size_t)(slash - here.dli_fname) > sizeof path - sizeof "/libpar.so") {
        PyErr_SetString(PyExc_ImportError, "cannot tell where _sgl_pcie was loaded from");
        return -1;
    }
    snprintf(path, sizeof path, "%.*s/libpar.so", (int)(slash - here.dli_fname), here.dli_fname);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        PyErr_Format(PyExc_ImportError, "cannot load libpar.so: %s", dlerror());
        return -1;
    }
    return find_all(library);
}

/* --- errors ------------------------------------------------------------------------------------------------------- */

static PyObject *raise_error(int code)
{
    const char *text = par.par_last_error();
    PyObject *error = PyObject_CallFunction(Error, "s", text[0] ? text : par.par_error_name(code));
    PyObject *number = PyLong_FromLong(code);
    if (error && number && PyObject_SetAttrString(error, "code", number) == 0)
        PyErr_SetObject(Error, error);
    Py_XDECREF(error);
    Py_XDECREF(number);
    return NULL;
}

static PyObject *none_or_error(int code)
{
    if (code)
        return raise_error(code);
    Py_RETURN_NONE;
}

/* --- the communicator --------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD par_comm *comm; /* null: closed, or never created */
} Communicator;

/* What the all-gather callback needs while par_create() runs without the interpreter lock. */
typedef struct {
    PyObject *function;
    PyThreadState *state;
    int world;
} gathering;

static int copy_gathered(PyObject *result, void *all, size_t bytes)
{
    char *data;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(result, &data, &length) < 0)
        return -1;
    if ((size_t)length != bytes) {
        PyErr_Format(PyExc_ValueError, "allgather returned %zd bytes, expected %zu", length, bytes);
        return -1;
    }
    memcpy(all, data, bytes);
    return 0;
}

/* An exception stays set in the thread's state until par_create() has returned. */
static int allgather(void *context, const void *mine, void *all, size_t bytes)
{
    gathering *g = context;
    PyObject *result = NULL;
    int rc = -1;
    PyEval_RestoreThread(g->state);
    if (!PyErr_Occurred())
        result = PyObject_CallFunction(g->function, "y#", (const char *)mine, (Py_ssize_t)bytes);
    if (result)
        rc = copy_gathered(result, all, bytes * (size_t)g->world);
    Py_XDECREF(result);
    g->state = PyEval_SaveThread();
    return rc;
}

static int create(Communicator *self, int rank, int device, gathering *g, const par_options *options)
{
    int code;
    g->state = PyEval_SaveThread();
    code = par.par_create(&self->comm, rank, g->world, device, allgather, g, options);
    PyEval_RestoreThread(g->state);
    if (PyErr_Occurred()) /* the callback's own exception says more than "the callback failed" */
        return -1;
    if (code)
        raise_error(code);
    return code ? -1 : 0;
}

static void close_comm(Communicator *self)
{
    par_comm *comm = self->comm;
    PyThreadState *state;
    self->comm = NULL;
    if (comm) {
        state = PyEval_SaveThread();
        par.par_close(comm);
        PyEval_RestoreThread(state);
    }
}

static PyObject *communicator_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"rank",           "world",     "device", "allgather", "transports",
                            "sentinel_bytes", "timeout_s", "late_s", "status",    NULL};
    par_options options = PAR_OPTIONS_INIT;
    gathering g = {0};
    Py_ssize_t sentinel_bytes = 0;
    int rank, device, transports = PAR_WITH_ALL, status = 0;
    Communicator *self = NULL;
    allocfunc allocate = __extension__(allocfunc) PyType_GetSlot(type, Py_tp_alloc);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iiiO|$inddp:Communicator", names, &rank, &g.world, &device,
                                     &g.function, &transports, &sentinel_bytes, &options.timeout_s, &options.late_s,
                                     &status))
        return NULL;
    options.with = (uint32_t)transports;
    options.sentinel_bytes = (uint64_t)sentinel_bytes; /* less than none is too much, and refused */
    options.mode = status ? PAR_MODE_STATUS : PAR_MODE_ENGINE;
    self = (Communicator *)allocate(type, 0);
    if (self && create(self, rank, device, &g, &options) < 0) {
        PyObject *exception, *value, *trace;
        PyErr_Fetch(&exception, &value, &trace); /* freeing must not see it */
        Py_DECREF(self);
        PyErr_Restore(exception, value, trace);
        self = NULL;
    }
    return (PyObject *)self;
}

static void communicator_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = __extension__(freefunc) PyType_GetSlot(type, Py_tp_free);
    close_comm((Communicator *)object);
    release(object);
    Py_DECREF(type);
}

static par_comm *opened(PyObject *object)
{
    par_comm *comm = ((Communicator *)object)->comm;
    if (!comm)
        PyErr_SetString(Error, "the communicator is closed");
    return comm;
}

/* all_reduce(in, out, count, dtype, algorithm, stream): six integers, no keyword: this is called per layer. */
static PyObject *communicator_all_reduce(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    par_comm *comm = opened(object);
    void *in, *out, *stream;
    size_t count;
    long dtype, algorithm;
    if (!comm)
        return NULL;
    if (nargs != 6)
        return PyErr_Format(PyExc_TypeError, "all_reduce takes 6 arguments, not %zd", nargs);
    in = PyLong_AsVoidPtr(args[0]);
    out = PyLong_AsVoidPtr(args[1]);
    count = PyLong_AsSize_t(args[2]);
    dtype = PyLong_AsLong(args[3]);
    algorithm = PyLong_AsLong(args[4]);
    stream = PyLong_AsVoidPtr(args[5]);
    if (PyErr_Occurred())
        return NULL;
    return none_or_error(par.par_all_reduce(comm, in, out, count, (par_dtype)dtype, (par_algorithm)algorithm, stream));
}

static int read_choice(PyObject *item, par_choice *choice)
{
    PyObject *tuple = PySequence_Tuple(item), *limit = NULL;
    int ok = tuple && PyArg_ParseTuple(tuple, "Oi|ii;(max_bytes, algorithm, lanes, threads)", &limit,
                                       &choice->algorithm, &choice->lanes, &choice->threads);
    if (ok)
        choice->max_bytes = PyLong_AsSize_t(limit);
    Py_XDECREF(tuple);
    return ok && !PyErr_Occurred() ? 0 : -1;
}

static PyObject *communicator_set_profile(PyObject *object, PyObject *list)
{
    par_choice choices[64]; /* as many as the library takes */
    par_comm *comm = opened(object);
    Py_ssize_t n = comm ? PySequence_Size(list) : -1;
    if (n > (Py_ssize_t)(sizeof choices / sizeof choices[0]))
        return PyErr_Format(PyExc_ValueError, "a profile has at most 64 entries, not %zd", n);
    memset(choices, 0, sizeof choices);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(list, i);
        int rc = item ? read_choice(item, &choices[i]) : -1;
        Py_XDECREF(item);
        if (rc < 0)
            return NULL;
    }
    return n < 0 ? NULL : none_or_error(par.par_set_profile(comm, choices, (size_t)n));
}

static PyObject *communicator_max_bytes(PyObject *object, PyObject *algorithm)
{
    par_comm *comm = opened(object);
    long number = comm ? PyLong_AsLong(algorithm) : -1;
    if (number == -1 && PyErr_Occurred())
        return NULL;
    return PyLong_FromSize_t(par.par_max_bytes(comm, (par_algorithm)number));
}

static PyObject *communicator_choose(PyObject *object, PyObject *bytes)
{
    par_comm *comm = opened(object);
    size_t size = comm ? PyLong_AsSize_t(bytes) : 0;
    if (PyErr_Occurred())
        return NULL;
    return PyLong_FromLong(par.par_choose(comm, size));
}

static PyObject *communicator_status(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    par_comm *comm = opened(object);
    return comm ? PyLong_FromLong(par.par_status(comm)) : NULL;
}

static PyObject *communicator_report(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    par_comm *comm = opened(object);
    par_report r;
    int code;
    if (!comm)
        return NULL;
    code = par.par_last_report(comm, &r);
    if (code)
        return raise_error(code);
    if (!r.error)
        Py_RETURN_NONE;
    return Py_BuildValue("{s:s,s:i,s:i,s:s,s:i,s:i,s:I,s:I,s:I,s:K,s:s}", "error", par.par_error_name(r.error), "rank",
                         r.rank, "peer", r.peer, "algorithm",
                         par.par_algorithm_name(r.algorithm) ? par.par_algorithm_name(r.algorithm) : "", "phase",
                         r.phase, "lane", r.lane, "epoch", r.epoch, "expected", r.expected, "seen", r.seen, "waited_ns",
                         (unsigned long long)r.waited_ns, "text", r.text);
}

static PyObject *communicator_abort(PyObject *object, PyObject *args)
{
    par_comm *comm = opened(object);
    const char *why = NULL;
    if (!comm || !PyArg_ParseTuple(args, "|z:abort", &why))
        return NULL;
    par.par_abort(comm, why);
    Py_RETURN_NONE;
}

static PyObject *communicator_close(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    close_comm((Communicator *)object);
    Py_RETURN_NONE;
}

static PyObject *communicator_rank(PyObject *object, void *Py_UNUSED(closure))
{
    par_comm *comm = opened(object);
    return comm ? PyLong_FromLong(par.par_rank(comm)) : NULL;
}

static PyObject *communicator_world(PyObject *object, void *Py_UNUSED(closure))
{
    par_comm *comm = opened(object);
    return comm ? PyLong_FromLong(par.par_world(comm)) : NULL;
}

/* METH_FASTCALL has another type than PyCFunction; CPython itself casts so. */
#define FASTCALL(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef communicator_methods[] = {
    {"all_reduce", FASTCALL(communicator_all_reduce), METH_FASTCALL,
     "all_reduce(in, out, count, dtype, algorithm, stream): enqueue one; pointers and stream as integers."},
    {"set_profile", communicator_set_profile, METH_O,
     "set_profile([(max_bytes, algorithm, lanes, threads), ...]): what algorithm 0 (auto) takes."},
    {"max_bytes", communicator_max_bytes, METH_O, "max_bytes(algorithm): its largest message; 0 if not set up."},
    {"choose", communicator_choose, METH_O, "choose(bytes): the algorithm that auto would take; 0 if none."},
    {"status", communicator_status, METH_NOARGS, "status(): 0, or the error code once aborted."},
    {"report", communicator_report, METH_NOARGS, "report(): what the abort found as a dict, or None."},
    {"abort", communicator_abort, METH_VARARGS, "abort(why=None): abort all ranks; does not wait."},
    {"close", communicator_close, METH_NOARGS, "close(): free it; not collective; any number of times."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef communicator_properties[] = {
    {"rank", communicator_rank, NULL, NULL, NULL},
    {"world", communicator_world, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot communicator_slots[] = {
    {Py_tp_doc,
     "Communicator(rank, world, device, allgather, *, transports, sentinel_bytes, timeout_s, late_s, status)\n\n"
     "One rank's end; creating is collective. allgather: bytes of this rank to those of all, in order of rank."},
    {Py_tp_new, SLOT(communicator_new)},
    {Py_tp_dealloc, SLOT(communicator_dealloc)},
    {Py_tp_methods, communicator_methods},
    {Py_tp_getset, communicator_properties},
    {0, NULL},
};

static PyType_Spec communicator_spec = {"_sgl_pcie.Communicator", sizeof(Communicator), 0, Py_TPFLAGS_DEFAULT,
                                        communicator_slots};

/* --- the module --------------------------------------------------------------------------------------------------- */

static PyObject *module_memory_bound(PyObject *Py_UNUSED(module), PyObject *args)
{
    par_options options = PAR_OPTIONS_INIT;
    Py_ssize_t sentinel_bytes = 0;
    uint64_t device = 0, host = 0;
    int world, transports, code;
    if (!PyArg_ParseTuple(args, "ii|n:memory_bound", &world, &transports, &sentinel_bytes))
        return NULL;
    options.with = (uint32_t)transports;
    options.sentinel_bytes = (uint64_t)sentinel_bytes; /* less than none is too much, and refused */
    code = par.par_memory_bound(world, &options, &device, &host);
    if (code)
        return raise_error(code);
    return Py_BuildValue("(KK)", (unsigned long long)device, (unsigned long long)host);
}

static PyMethodDef module_methods[] = {
    {"memory_bound", module_memory_bound, METH_VARARGS,
     "memory_bound(world, transports, sentinel_bytes=0): (device, host) bytes that one rank allocates at most."},
    {NULL, NULL, 0, NULL},
};

/* {name: number} of what has a name; takes the dict over. */
static int add_names(PyObject *module, const char *attribute, const char *(*name_of)(int), int end)
{
    PyObject *names = PyDict_New();
    int rc = names ? 0 : -1;
    for (int i = 0; rc == 0 && i < end; i++) {
        PyObject *number = PyLong_FromLong(i);
        rc = number ? PyDict_SetItemString(names, name_of(i), number) : -1;
        Py_XDECREF(number);
    }
    if (rc == 0)
        rc = PyModule_AddObjectRef(module, attribute, names);
    Py_XDECREF(names);
    return rc;
}

static int add_constants(PyObject *module)
{
    if (PyModule_AddIntConstant(module, "WITH_HOST", PAR_WITH_HOST) < 0 ||
        PyModule_AddIntConstant(module, "WITH_PEER", PAR_WITH_PEER) < 0 ||
        PyModule_AddIntConstant(module, "MAX_WORLD", PAR_MAX_WORLD) < 0 ||
        PyModule_AddIntConstant(module, "ABI", par.par_abi()) < 0 ||
        PyModule_AddStringConstant(module, "VERSION", par.par_version()) < 0 ||
        add_names(module, "ALGORITHMS", par.par_algorithm_name, PAR_ALGORITHMS) < 0)
        return -1;
    return add_names(module, "DTYPES", par.par_dtype_name, PAR_DTYPES);
}

static int add_types(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&communicator_spec);
    int rc = type ? PyModule_AddObjectRef(module, "Communicator", type) : -1;
    Py_XDECREF(type);
    if (rc == 0 && !Error)
        Error = PyErr_NewException("_sgl_pcie.Error", PyExc_RuntimeError, NULL);
    return rc == 0 && Error ? PyModule_AddObjectRef(module, "Error", Error) : -1;
}

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "_sgl_pcie",
    "CPython module on libpar.so; see pcie_allreduce.h.",
    -1,
    module_methods,
    NULL,
    NULL,
    NULL,
    NULL,
};

PyMODINIT_FUNC PyInit__sgl_pcie(void)
{
    PyObject *module = open_library() == 0 ? PyModule_Create(&definition) : NULL;
    if (module && (add_types(module) < 0 || add_constants(module) < 0)) {
        Py_DECREF(module);
        module = NULL;
    }
    return module;
}
