/* gguf_split.c - a model in several files becomes one gguf_file.
 *
 *     NAME-00001-of-00003.gguf   all keys,   split.no 0, split.count 3, split.tensors.count
 *     NAME-00002-of-00003.gguf   few or none, split.no 1, likewise
 *     NAME-00003-of-00003.gguf                split.no 2
 *
 * Each is a whole GGUF file, mapped and checked by itself. What is here is whether they belong
 * together: a part that says of itself something else than its name, the first or the sum of all
 * does is refused. Only the first one's keys are looked at afterwards, so that a later part says
 * nothing new; what it repeats must be the same.
 *
 * Invariant after gguf_join: `tensors` of the first has those of all, no name twice, and `others`
 * live as long as it. */
#include "gguf/gguf_cursor.h"
#include "gguf/gguf_file.h"

#include <stdio.h>

enum {
    MOST_PARTS = 512, /* each is an open file */
    PATH_BYTES = 4096,
    ENDING = 20 /* of "-00001-of-00003.gguf" */
};

typedef struct parts {
    gguf_file **files; /* [count] */
    uint32_t count;
    const char *path; /* of the one that was opened first */
    int prefix;       /* bytes of it before the ending */
} parts;

rad_status gguf_split_count(const gguf_file *file, uint32_t *count, rad_error *err)
{
    *count = 0;
    rad_status status = gguf_get_u32(file, "split.count", count, err);
    if (status < 0) return status;
    if (*count <= 1) *count = 0; /* joined again, by whatever tool */
    return RAD_OK;
}

static rad_status part_path(const parts *p, uint32_t i, char path[PATH_BYTES], rad_error *err)
{
    int n =
        snprintf(path, PATH_BYTES, "%.*s-%05u-of-%05u.gguf", p->prefix, p->path, i + 1, p->count);
    if (n < PATH_BYTES) return RAD_OK;
    return rad_fail(err, RAD_E_LIMIT, "gguf: a path of %d bytes", n);
}

/* A key that every part must have. */
static rad_status get_split_key(const gguf_file *f, const char *key, const char *path,
                                uint32_t *out, rad_error *err)
{
    rad_error why = {0};
    rad_status status = gguf_get_u32(f, key, out, &why);
    if (status == RAD_OK) return RAD_OK;
    return rad_fail(err, RAD_E_FORMAT, "gguf: %s is one of several parts: %s%s", path,
                    status == RAD_NONE ? "no key " : why.text, status == RAD_NONE ? key : "");
}

static bool same_value(const gguf_kv *a, const gguf_kv *b)
{
    if (a->type != b->type) return false;
    if (a->type == GGUF_STR)
        return a->str.len == b->str.len && !memcmp(a->str.data, b->str.data, a->str.len);
    if (a->type != GGUF_ARR) return a->u == b->u;
    if (a->arr.type != b->arr.type || a->arr.count != b->arr.count) return false;
    if (a->arr.type != GGUF_STR)
        return !memcmp(a->arr.data, b->arr.data,
                       (size_t)a->arr.count * gguf_scalar_bytes(a->arr.type));
    for (uint64_t i = 0; i < a->arr.count; i++) {
        const gguf_str x = a->arr.strs[i], y = b->arr.strs[i];
        if (x.len != y.len || memcmp(x.data, y.data, x.len) != 0) return false;
    }
    return true;
}

/* What part i repeats of the first. */
static rad_status check_keys(const gguf_file *first, const gguf_file *f, const char *path,
                             rad_error *err)
{
    for (uint64_t i = 0; i < f->num_kvs; i++) {
        const gguf_kv *kv = &f->kvs[i];
        const char no[] = "split.no";
        if (kv->key.len == sizeof no - 1 && !memcmp(kv->key.data, no, sizeof no - 1)) continue;
        const int64_t at = gguf_names_find(&first->keys, kv->key);
        if (at < 0 || same_value(kv, &first->kvs[at])) continue;
        return rad_fail(err, RAD_E_FORMAT,
                        "gguf: %s is of another model than the first part: its key '%s' has "
                        "another value",
                        path, gguf_show(kv->key).text);
    }
    return RAD_OK;
}

/* `tensors`: how many all parts have together, as the first that was opened says. */
static rad_status check_part(const parts *p, uint32_t i, uint32_t tensors, rad_error *err)
{
    char path[PATH_BYTES];
    uint32_t no, count, all;
    const gguf_file *f = p->files[i];
    rad_status status = part_path(p, i, path, err);
    if (!status) status = get_split_key(f, "split.no", path, &no, err);
    if (!status) status = get_split_key(f, "split.count", path, &count, err);
    if (!status) status = get_split_key(f, "split.tensors.count", path, &all, err);
    if (status) return status;
    if (no != i || count != p->count)
        return rad_fail(err, RAD_E_FORMAT,
                        "gguf: %s says of itself that it is part %llu of %u (split.no %u, "
                        "split.count %u)",
                        path, (unsigned long long)no + 1, count, no, count);
    if (all != tensors)
        return rad_fail(err, RAD_E_FORMAT,
                        "gguf: %s is of another model: it says split.tensors.count is %u, %.*s... "
                        "says %u",
                        path, all, p->prefix, p->path, tensors);
    return RAD_OK;
}

/* The other parts, each whole in itself. */
static rad_status open_others(const rad_env *env, parts *p, uint32_t tensors, rad_error *err)
{
    char path[PATH_BYTES];
    rad_status status = RAD_OK;
    for (uint32_t i = 0; i < p->count && !status; i++) {
        rad_error why = {0};
        status = part_path(p, i, path, err);
        if (!status && !p->files[i]) {
            status = gguf_open_one(env, path, &p->files[i], &why);
            if (status)
                return rad_fail(err, status, "gguf: part %u of %u, %s: %s", i + 1, p->count, path,
                                why.text);
        }
        if (!status) status = check_part(p, i, tensors, err);
        if (!status && i) status = check_keys(p->files[0], p->files[i], path, err);
    }
    return status;
}

/* One table of all tensors, in the first. */
static rad_status join_tensors(const parts *p, uint32_t claimed, rad_error *err)
{
    uint64_t total = 0, at = 0;
    gguf_file *first = p->files[0];
    for (uint32_t i = 0; i < p->count; i++)
        total += p->files[i]->num_tensors;
    if (total != claimed || total > GGUF_MOST_TENSORS)
        return rad_fail(err, RAD_E_FORMAT,
                        "gguf: the %u parts %.*s... have %llu tensors, split.tensors.count is %u",
                        p->count, p->prefix, p->path, (unsigned long long)total, claimed);
    if (!total) return RAD_OK;
    gguf_tensor *all = rad_alloc(&first->env, (size_t)total * sizeof *all);
    if (!all)
        return rad_fail(err, RAD_E_NOMEM, "gguf: no memory for %llu tensors",
                        (unsigned long long)total);
    for (uint32_t i = 0; i < p->count; i++) {
        const gguf_file *f = p->files[i];
        if (f->num_tensors) memcpy(all + at, f->tensors, f->num_tensors * sizeof *all);
        at += f->num_tensors;
    }
    gguf_names_fini(&first->tensor_names, &first->env);
    rad_free(&first->env, first->tensors, (size_t)first->num_tensors * sizeof *first->tensors);
    first->tensors = all;
    first->num_tensors = total;
    return gguf_names_init(&first->tensor_names, &first->env, &all[0].name, sizeof all[0],
                           (size_t)total, "tensor", NULL, err);
}

/* Where the name ends as that of part `no` of `count`: bytes before that ending. */
static rad_status find_prefix(const char *path, uint32_t no, uint32_t count, int *prefix,
                              rad_error *err)
{
    char ending[2 * ENDING];
    const size_t len = strlen(path);
    snprintf(ending, sizeof ending, "-%05llu-of-%05u.gguf", (unsigned long long)no + 1, count);
    if (no < count && len >= ENDING && len < PATH_BYTES && !strcmp(path + len - ENDING, ending)) {
        *prefix = (int)len - ENDING;
        return RAD_OK;
    }
    return rad_fail(err, RAD_E_FORMAT,
                    "gguf: %s says of itself that it is part %llu of %u (split.no %u, split.count "
                    "%u), but its name does not end in %s: where are the others?",
                    path, (unsigned long long)no + 1, count, no, count, ending);
}

rad_status gguf_join(gguf_file *file, const char *path, gguf_file **out, rad_error *err)
{
    parts p = {.path = path};
    uint32_t no = 0, tensors = 0;
    rad_env env = file->env;
    *out = NULL;
    rad_status status = gguf_split_count(file, &p.count, err);
    if (!status && !p.count) {
        *out = file;
        return RAD_OK;
    }
    if (!status && p.count > MOST_PARTS)
        status = rad_fail(err, RAD_E_LIMIT, "gguf: %s says split.count is %u, we open %d at most",
                          path, p.count, MOST_PARTS);
    if (!status) status = get_split_key(file, "split.no", path, &no, err);
    if (!status) status = get_split_key(file, "split.tensors.count", path, &tensors, err);
    if (!status) status = find_prefix(path, no, p.count, &p.prefix, err);
    if (!status && !(p.files = rad_alloc(&env, p.count * sizeof(gguf_file *))))
        status = rad_fail(err, RAD_E_NOMEM, "gguf: no memory");
    if (status) {
        gguf_close(file);
        return status;
    }
    p.files[no] = file;
    status = open_others(&env, &p, tensors, err);
    if (!status) status = join_tensors(&p, tensors, err);
    gguf_file **others = status ? NULL : rad_alloc(&env, (p.count - 1) * sizeof *others);
    if (!status && !others) status = rad_fail(err, RAD_E_NOMEM, "gguf: no memory");
    if (status) {
        for (uint32_t i = 0; i < p.count; i++)
            gguf_close(p.files[i]);
    } else {
        memcpy(others, p.files + 1, (p.count - 1) * sizeof *others);
        *out = p.files[0];
        (*out)->others = others;
        (*out)->num_others = p.count - 1;
    }
    rad_free(&env, p.files, p.count * sizeof(gguf_file *));
    return status;
}
