/* sessions.c - sessions of a cache: opened, claimed by a request's turn, closed. */
#include "python.h"

static PyObject *call_session_open(PyObject *self, PyObject *none)
{
    (void)none;
    cache_object *c = (cache_object *)self;
    if (!cache_enter(c, "session_open")) return NULL;
    rad_session session = 0;
    rad_status status = rad_session_open(c->cache, &session);
    if (!cache_leave(c)) return NULL;
    if (status == RAD_FULL) Py_RETURN_NONE;
    if (status) return raise_status(status, NULL, "session_open: this cache has no sessions");
    return PyLong_FromUnsignedLong(session);
}

static PyObject *call_session_close(PyObject *self, PyObject *session_arg)
{
    cache_object *c = (cache_object *)self;
    uint32_t session = 0;
    if (!arg_u32(session_arg, "session", &session) || !cache_enter(c, "session_close")) return NULL;
    rad_status status = rad_session_close(c->cache, session);
    if (!cache_leave(c)) return NULL;
    if (status) return raise_status(status, NULL, "session_close: the session is not open");
    Py_RETURN_NONE;
}

static PyObject *call_session_begin(PyObject *self, PyObject *req)
{
    cache_object *c = (cache_object *)self;
    request_object *r = request_of(c, req, "session_begin");
    if (!request_enter(c, r, "session_begin")) return NULL;
    rad_error err;
    rad_status status = rad_session_begin(c->cache, &r->kv, &err);
    if (!request_leave(c, r)) return NULL;
    if (status < 0) return raise_status(status, &err, "session_begin");
    return PyBool_FromLong(status == RAD_OK);
}

static PyObject *call_release_idle(PyObject *self, PyObject *count_arg)
{
    cache_object *c = (cache_object *)self;
    uint32_t count = 0;
    if (!arg_u32(count_arg, "count", &count) || !cache_enter(c, "session_release_idle"))
        return NULL;
    uint32_t given = rad_session_release_idle(c->cache, count);
    if (!cache_leave(c)) return NULL;
    return PyLong_FromUnsignedLong(given);
}

static const record_field session_fields[] = {
    {"open", F_U64, offsetof(rad_session_stats, open), NULL, NULL},
    {"held", F_U64, offsetof(rad_session_stats, held), NULL, NULL},
    {"held_tokens", F_U64, offsetof(rad_session_stats, held_tokens), NULL, NULL},
    {"active", F_U64, offsetof(rad_session_stats, active), NULL, NULL},
    {"restored", F_U64, offsetof(rad_session_stats, restored), NULL, NULL},
    {"dropped", F_U64, offsetof(rad_session_stats, dropped), NULL, NULL},
    {0},
};
static PyTypeObject *session_type;

static PyObject *call_session_stats(PyObject *self, PyObject *none)
{
    (void)none;
    cache_object *c = (cache_object *)self;
    if (!cache_enter(c, "session_stats")) return NULL;
    rad_session_stats stats;
    rad_session_get_stats(c->cache, &stats);
    if (!cache_leave(c)) return NULL;
    return record_new(session_type, session_fields, &stats);
}

PyMethodDef session_calls[] = {
    {"session_open", call_session_open, METH_NOARGS,
     "session_open() -> int | None\n\nNone: as many are open as may be."},
    {"session_close", call_session_close, METH_O, "session_close(session) -> None"},
    {"session_begin", call_session_begin, METH_O,
     "session_begin(req) -> bool\n\nClaims the session for the request's turn (admit does it). "
     "False: what was matched has gone; match again."},
    {"session_release_idle", call_release_idle, METH_O,
     "session_release_idle(count) -> int\n\nGives idle sessions' K/V and rows back."},
    {"session_stats", call_session_stats, METH_NOARGS, "session_stats() -> SessionStats"},
    {0},
};

bool sessions_init(PyObject *module)
{
    session_type =
        record_type(module, "radish.SessionStats", "Sessions of a cache.", session_fields, NULL);
    return session_type != NULL;
}
