/* page_hash.c - the hashes that name pages: of what a cache holds, and of any tokens without one.
 */
#include "python.h"

#include <string.h>

/* ---- of a cache ---- */

static PyObject *call_page_hashes(PyObject *self, fast_args args, Py_ssize_t nargs,
                                  PyObject *kwnames)
{
    static signature s = {"page_hashes", 1, 1, {"tokens", "extra_key", "cache_salt"}, {0}};
    cache_object *c = (cache_object *)self;
    PyObject *a[3], *list = NULL;
    ints_in tokens;
    rad_key key;
    if (!args_read(&s, args, nargs, kwnames, a) || !key_take(a[0], a[1], a[2], NULL, &tokens, &key))
        return NULL;
    uint32_t room = key.num_tokens / c->page_size, count = 0;
    rad_page_hash *hashes = PyMem_Calloc((size_t)room + 1, sizeof *hashes);
    if (!hashes) {
        PyErr_NoMemory();
    } else if (cache_enter(c, "page_hashes")) {
        rad_status status = rad_cache_get_page_hashes(c->cache, &key, hashes, room, &count);
        if (cache_leave(c)) {
            if (status)
                raise_status(status, NULL,
                             "page_hashes: the cache was made without "
                             "enable_page_hashes, or the key has no tokens");
            else
                list = PyList_New(count);
        }
        for (uint32_t i = 0; list && i < count; i++) {
            PyObject *hash =
                PyBytes_FromStringAndSize((const char *)hashes[i].bytes, sizeof hashes[i].bytes);
            if (!hash || PyList_SetItem(list, i, hash)) Py_CLEAR(list);
        }
    }
    PyMem_Free(hashes);
    ints_give_back(&tokens);
    return list;
}

PyMethodDef hash_calls[] = {
    FAST("page_hashes", call_page_hashes,
         "page_hashes(tokens, *, extra_key=None, cache_salt=None) -> list[bytes]\n\nThe hashes of "
         "the leading pages that are cached."),
    {0},
};

/* ---- without a cache ---- */

/* A prior of 32 bytes, or None. */
static bool take_hash(PyObject *from, rad_page_hash *hash, const rad_page_hash **out)
{
    *out = NULL;
    if (!from || from == Py_None) return true;
    char *bytes;
    Py_ssize_t count;
    if (PyBytes_AsStringAndSize(from, &bytes, &count)) return false;
    if (count != sizeof hash->bytes) {
        PyErr_Format(PyExc_ValueError, "prior has %zd bytes: a page's hash has 32", count);
        return false;
    }
    memcpy(hash->bytes, bytes, sizeof hash->bytes);
    *out = hash;
    return true;
}

/* One for the module: made when it is needed first, used under the interpreter's lock. */
static rad_page_hasher *made;

void page_hash_at_exit(void)
{
    rad_page_hasher_destroy(made);
    made = NULL;
}

static rad_page_hasher *hasher(void)
{
    rad_error err;
    rad_status status = made ? RAD_OK : rad_page_hasher_create(module_env(), &made, &err);
    if (status) raise_status(status, &err, NULL);
    return status ? NULL : made;
}

static PyObject *hash_chain(PyObject *module, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {
        "page_hash_chain", 2, 3, {"tokens", "page_size", "prior", "is_eagle"}, {0}};
    (void)module;
    PyObject *a[4], *list = NULL;
    ints_in tokens;
    uint32_t page_size = 0, is_eagle = 0;
    rad_page_hash hash;
    const rad_page_hash *prior;
    if (!args_read(&s, args, nargs, kwnames, a) || !arg_u32(a[1], "page_size", &page_size) ||
        !arg_flag(a[3], &is_eagle) || !take_hash(a[2], &hash, &prior))
        return NULL;
    if (!page_size) {
        PyErr_SetString(PyExc_ValueError, "page_size is 0");
        return NULL;
    }
    rad_page_hasher *h = hasher();
    if (!h || !ints_take(a[0], "tokens", INTS_TOKENS, &tokens)) return NULL;
    Py_ssize_t positions = tokens.count - (is_eagle && tokens.count ? 1 : 0);
    Py_ssize_t pages = positions / page_size;
    list = PyList_New(pages);
    for (Py_ssize_t i = 0; list && i < pages; i++) {
        const rad_token *page = tokens.data + i * page_size;
        rad_page_hash next;
        rad_status status =
            is_eagle ? rad_page_hash_bigrams(h, prior, page[0], page + 1, page_size, &next)
                     : rad_page_hash_tokens(h, prior, page, page_size, &next);
        hash = next;
        prior = &hash;
        PyObject *bytes =
            status ? raise_status(status, NULL, "page_hash_chain: libcrypto failed")
                   : PyBytes_FromStringAndSize((const char *)hash.bytes, sizeof hash.bytes);
        if (!bytes || PyList_SetItem(list, i, bytes)) Py_CLEAR(list);
    }
    ints_give_back(&tokens);
    return list;
}

static PyObject *hash_seed(PyObject *module, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {"page_hash_seed", 0, 2, {"extra_key", "cache_salt"}, {0}};
    (void)module;
    PyObject *a[2];
    const char *extra_key, *cache_salt;
    if (!args_read(&s, args, nargs, kwnames, a) || !arg_name(a[0], "extra_key", &extra_key) ||
        !arg_name(a[1], "cache_salt", &cache_salt))
        return NULL;
    rad_page_hasher *h = hasher();
    if (!h) return NULL;
    rad_page_hash seed;
    rad_status status = rad_page_hash_seed(h, extra_key, cache_salt, &seed);
    if (status == RAD_NONE) Py_RETURN_NONE;
    if (status) return raise_status(status, NULL, "page_hash_seed: a name is too long");
    return PyBytes_FromStringAndSize((const char *)seed.bytes, sizeof seed.bytes);
}

static PyObject *hash_event(PyObject *module, PyObject *hash_arg)
{
    (void)module;
    rad_page_hash hash;
    const rad_page_hash *given;
    if (!take_hash(hash_arg, &hash, &given)) return NULL;
    if (given) return PyLong_FromLongLong(rad_page_hash_event(given));
    PyErr_SetString(PyExc_TypeError, "page_hash_event() takes the 32 bytes of a hash");
    return NULL;
}

static PyMethodDef functions[] = {
    FAST("page_hash_chain", hash_chain,
         "page_hash_chain(tokens, page_size, prior=None, *, is_eagle=False) -> list[bytes]\n\nThe "
         "names of the whole pages of tokens: chained SHA-256, in the default namespace SGLang's "
         "bytes. `prior`: the hash of the page before, or a namespace's seed."),
    FAST("page_hash_seed", hash_seed,
         "page_hash_seed(extra_key=None, cache_salt=None) -> bytes | None\n\nWhat a namespace's "
         "chain begins with; None: the default one's begins with nothing."),
    {"page_hash_event", hash_event, METH_O,
     "page_hash_event(hash) -> int\n\nThe form that events carry."},
    {0},
};

bool page_hash_init(PyObject *module)
{
    return !PyModule_AddFunctions(module, functions);
}
