/* module.c - the module, its exceptions and constants. */
#include "python.h"

#include <stdlib.h>

PyObject *error_class;

/* By -status. */
static struct {
    const char *name, *doc;
    PyObject **base; /* Python's own, besides Error */
    PyObject *made;
} errors[] = {
    {"radish.Error",
     "What the library refuses or fails at, in its own words. `status` is its name "
     "for it: \"RAD_E_STATE\".",
     NULL, NULL},
    {"radish.InvalidError", "RAD_E_INVAL: an argument is wrong.", &PyExc_ValueError, NULL},
    {"radish.NoMemoryError", "RAD_E_NOMEM: there is no memory.", &PyExc_MemoryError, NULL},
    {"radish.StateError",
     "RAD_E_STATE: misuse, such as a page freed twice, a stale node, a closed "
     "object, or a call from another thread than the owner's.",
     &PyExc_RuntimeError, NULL},
    {"radish.IOError", "RAD_E_IO: a file, a socket or a device failed.", &PyExc_OSError, NULL},
    {"radish.FormatError", "RAD_E_FORMAT: bytes do not follow their format.", &PyExc_ValueError,
     NULL},
    {"radish.UnsupportedError", "RAD_E_UNSUPPORTED: not something that this object does.",
     &PyExc_NotImplementedError, NULL},
    {"radish.LimitError", "RAD_E_LIMIT: past a limit that was set at the start.",
     &PyExc_OverflowError, NULL},
    {"radish.CorruptError", "RAD_E_CORRUPT: a check found a contradiction.", &PyExc_RuntimeError,
     NULL},
};

PyObject *raise_status(rad_status status, const rad_error *err, const char *what)
{
    if (PyErr_Occurred()) return NULL;
    size_t at = status < 0 && (size_t)-status < COUNT_OF(errors) ? (size_t)-status : 0;
    const char *words = err && err->status == status && err->text[0] ? err->text : what;
    PyErr_Format(errors[at].made, "%s", words ? words : rad_status_name(status));
    return NULL;
}

static bool add_errors(PyObject *module)
{
    for (size_t i = 0; i < COUNT_OF(errors); i++) {
        PyObject *bases = i ? PyTuple_Pack(2, errors[0].made, *errors[i].base) : NULL;
        if (i && !bases) return false;
        errors[i].made = PyErr_NewExceptionWithDoc(errors[i].name, errors[i].doc, bases, NULL);
        XDECREF(bases);
        if (!errors[i].made) return false;
        PyObject *status = PyUnicode_FromString(i ? rad_status_name(-(rad_status)i) : "");
        bool good =
            status && !PyObject_SetAttrString(errors[i].made, "status", status) &&
            !PyModule_AddObjectRef(module, errors[i].name + sizeof "radish." - 1, errors[i].made);
        XDECREF(status);
        if (!good) return false;
    }
    error_class = errors[-RAD_E_STATE].made; /* what handles refuse with */
    return true;
}

/* ---- the env ---- */

static void to_logging(void *user, rad_log_level level, const char *message)
{
    static const char *const methods[] = {"error", "warning", "info", "debug"};
    (void)user;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *logging = PyImport_ImportModule("logging");
    PyObject *logger = logging ? PyObject_CallMethod(logging, "getLogger", "s", "radish") : NULL;
    PyObject *done = logger ? PyObject_CallMethod(logger, methods[level], "ss", "%s", message)
                            : NULL;
    if (!done) PyErr_WriteUnraisable(logger);
    XDECREF(done);
    XDECREF(logger);
    XDECREF(logging);
    PyErr_Restore(type, value, trace);
    PyGILState_Release(state);
}

const rad_env *module_env(void)
{
    static const rad_env env = {.struct_size = sizeof env, .log = to_logging};
    return &env;
}

bool add_type(PyObject *module, PyType_Spec *spec, PyTypeObject *base, PyTypeObject **out)
{
    PyObject *bases = base ? PyTuple_Pack(1, (PyObject *)base) : NULL;
    if (base && !bases) return false;
    *out = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, bases);
    XDECREF(bases);
    return *out &&
           !PyModule_AddObjectRef(module, spec->name + sizeof "radish." - 1, (PyObject *)*out);
}

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                        "radish._core",
                                        "libradish for Python: see the package radish.",
                                        0,
                                        NULL,
                                        NULL,
                                        NULL,
                                        NULL,
                                        NULL};

PyMODINIT_FUNC PyInit__core(void)
{
    static PyInterpreterState *where;
    if (where) { /* the globals are the first interpreter's */
        PyErr_SetString(PyExc_ImportError,
                        where == PyInterpreterState_Get()
                            ? "radish was loaded and removed: it cannot be loaded twice"
                            : "radish can be used by one interpreter of a process");
        return NULL;
    }
    if (rad_version() / 100 != RAD_VERSION / 100) { /* another minor version is another ABI */
        PyErr_Format(PyExc_ImportError, "this module is for radish %s, and libradish is %s",
                     RAD_VERSION_STRING, rad_version_string());
        return NULL;
    }
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    if (add_errors(module) && array_init(module) && kv_allocator_init(module) &&
        req_to_token_pool_init(module) && state_pool_init(module) && cuda_device_init(module) &&
        kv_pool_init(module) && host_kv_pool_init(module) && cache_init(module) &&
        create_init(module) && match_init(module) && insert_init(module) && lock_init(module) &&
        match_handle_init(module) && request_init(module) && sessions_init(module) &&
        look_init(module) && kv_events_init(module) && page_hash_init(module) &&
        storage_init(module) && tiers_init(module) &&
        !PyModule_AddStringConstant(module, "__version__", rad_version_string()) &&
        !PyModule_AddIntConstant(module, "VERSION", rad_version())) {
        where = PyInterpreterState_Get();
        return module;
    }
    DECREF(module);
    return NULL;
}
