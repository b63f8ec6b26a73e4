/* backends.h - the stores that come with radish, by the words that name them.
 *
 * A store is named "SCHEME:WHERE" and has options of its own. A new backend is its files in this
 * room and a row of the table in backends.c: the engine reads scheme and options off it. */
#ifndef STORAGE_BACKENDS_H
#define STORAGE_BACKENDS_H

#include <radish/storage.h>

#include <stddef.h>

#include "base/base.h"

/* Where one option goes: into the params that `open` gets. */
typedef struct storage_option {
    const char *name;
    enum { STORAGE_U32, STORAGE_U64, STORAGE_TEXT, STORAGE_WORD } type;
    size_t offset;            /* in the backend's params */
    const char *const *words; /* STORAGE_WORD: a uint32_t, the place of one of these; then NULL */
} storage_option;

/* Room for the params of any backend. What an option left out is: 0. */
typedef union storage_params {
    char bytes[256]; /* first: {0} clears it all */
    max_align_t align;
} storage_params;

typedef struct storage_place {
    const char *where;    /* what follows the scheme */
    const char *password; /* or NULL; wiped when open returns */
    uint32_t mode;        /* of files, where there are any; 0: the default */
} storage_place;

typedef struct storage_backend {
    const char *scheme; /* "file" */
    const char *form;   /* how it is named, for people: "file:DIR" */
    const storage_option *options;
    size_t num_options;
    bool takes_password;
    rad_status (*open)(const rad_env *env, const storage_place *place, void *params,
                       rad_storage *out, rad_error *err);
} storage_backend;

/* The backend that "SCHEME:WHERE" names; *where is the rest of it. NULL: there is none such. */
const storage_backend *storage_backend_find(const char *spec, const char **where);

/* All forms, as a sentence lists them: "file:DIR or redis:HOST:PORT,...". Returns `text`. */
const char *storage_backend_forms(char *text, size_t size);

#endif
