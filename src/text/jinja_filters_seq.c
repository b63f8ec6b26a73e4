/* jinja_filters_seq.c - the filters over sequences: pick, map, sort, join.
 *
 * Where Jinja hands out generators, so do we (an ITERATOR): one walk, no length, no text.
 * They are filled at once, so what a generator would do later has happened here. */
#include "text/jinja_filters.h"

static bool given(jval v)
{
    return v.type != J_UNSET;
}
static bool some(jval v)
{
    return v.type != J_UNSET && v.type != J_NONE;
}

/* "a.b.0" of v, one part after the other; `otherwise` (may be J_UNSET) for what is undefined. */
static jval dig(jctx *c, jval v, jval path, jval otherwise)
{
    if (path.type != J_STR) return jitem(c, v, path);
    const jstr *s = path.u.s;
    for (size_t at = 0;;) {
        size_t len = 0;
        bool number = true;
        while (at + len < s->len && s->p[at + len] != '.') {
            number = number && s->p[at + len] >= '0' && s->p[at + len] <= '9';
            len++;
        }
        jwork(c, JINJA_CALL + (uint64_t)len * JINJA_LOOK);
        jval part = jsub(c, s, at, len);
        v = jitem(c, v, number && len && len < 10 ? jparse_int(c, part.u.s, 10) : part);
        if (v.type == J_UNDEFINED && given(otherwise)) v = otherwise;
        at += len + 1;
        if (at > s->len) return v;
    }
}

static jval iterator(jctx *c)
{
    return jlist_new(c, ITERATOR, 0);
}

/* ---- ends and sums ---- */

jval jfilter_first(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)args, (void)all;
    if (self.type == J_LIST && self.u.l->kind == ITERATOR) {
        jlist *l = self.u.l;
        return l->taken < l->len ? l->items[l->taken++] : jundefined("the first of nothing");
    }
    if (self.type == J_STR && self.u.s->len) return jitem(c, jplain(c, self.u.s), jint(0));
    const jlist *l = jiterate(c, self);
    return l->len ? l->items[0] : jundefined("the first of nothing");
}

jval jfilter_last(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)args, (void)all;
    if (self.type == J_LIST && self.u.l->kind == ITERATOR)
        jinja_fail(c, RAD_E_INVAL, "last: an iterator has no end to look at; use |list");
    if (self.type == J_STR && self.u.s->len) return jitem(c, self, jint(-1));
    const jlist *l = jiterate(c, self);
    return l->len ? l->items[l->len - 1] : jundefined("the last of nothing");
}

jval jfilter_length(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)args, (void)all;
    return jint(jlength(c, self));
}

jval jfilter_list(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)args, (void)all;
    const jlist *from = jiterate(c, self);
    jval list = jlist_new(c, LIST, from->len);
    for (uint32_t i = 0; i < from->len; i++)
        jlist_push(c, list.u.l, from->items[i]);
    return list;
}

jval jfilter_sum(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)all;
    const jlist *from = jiterate(c, self);
    jval sum = given(args[1]) ? args[1] : jint(0), none = {.type = J_UNSET};
    if (sum.type == J_STR) jinja_fail(c, RAD_E_INVAL, "sum does not add up texts; use |join");
    for (uint32_t i = 0; i < from->len; i++) {
        jsteps(c, 1);
        jval item = from->items[i];
        sum = jbinary(c, OP_ADD, sum, some(args[0]) ? dig(c, item, args[0], none) : item);
    }
    return sum;
}

jval jfilter_join(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)all;
    const jlist *from = jiterate(c, self);
    const jstr *between = given(args[0]) ? jshow(c, args[0]) : NULL;
    jval none = {.type = J_UNSET};
    jbuf b = {.c = c};
    for (uint32_t i = 0; i < from->len; i++) {
        jsteps(c, 1);
        if (i && between) jbuf_str(&b, between);
        jval item = from->items[i];
        jbuf_show(&b, some(args[1]) ? dig(c, item, args[1], none) : item);
    }
    return jbuf_value(&b);
}

jval jfilter_reverse(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)args, (void)all;
    const jlist *from = jiterate(c, self);
    bool was_iterator = self.type == J_LIST && self.u.l->kind == ITERATOR;
    jval list = jlist_new(c, was_iterator ? LIST : ITERATOR, from->len);
    jbuf b = {.c = c};
    for (uint32_t i = from->len; i > 0; i--) {
        jlist_push(c, list.u.l, from->items[i - 1]);
        if (self.type == J_STR) jbuf_show(&b, from->items[i - 1]);
    }
    return self.type == J_STR ? jlike(c, self.u.s, jbuf_value(&b)) : list;
}

jval jfilter_items(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)args, (void)all;
    jval list = iterator(c);
    if (self.type == J_UNDEFINED) return list;
    if (self.type != J_DICT)
        jinja_fail(c, RAD_E_INVAL, "items wants a dict, not a %s", jtype_name(self));
    for (uint32_t i = 0; i < self.u.d->len; i++)
        jlist_push(c, list.u.l, jpair(c, self.u.d->keys[i], self.u.d->values[i]));
    return list;
}

jval jfilter_attr(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)all;
    const jstr *name = jshow(c, args[0]);
    if (self.type == J_DICT) { /* attributes only: no items */
        jval method = jdict_method(c, self, name->p, name->len);
        return method.type == J_UNSET ? jundefined("an attribute of a dict") : method;
    }
    return jattribute(c, self, name);
}

/* ---- map, select, reject ---- */

/* The arguments behind the first n. */
static jargs behind(const jargs *all, uint32_t n)
{
    jargs rest = *all;
    if (n) rest.pos += n;
    rest.num_pos -= n;
    return rest;
}

static const jval *named(const jargs *all, const char *name)
{
    for (uint32_t i = 0; i < all->num_named; i++)
        if (strlen(name) == all->names[i]->len &&
            memcmp(name, all->names[i]->p, all->names[i]->len) == 0)
            return &all->named[i];
    return NULL;
}

jval jfilter_map(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)args;
    jval list = iterator(c), otherwise = {.type = J_UNSET};
    const jval *attribute = named(all, "attribute"), *fallback = named(all, "default");
    const jfunction *filter = NULL;
    jargs rest = {0};
    if (!jtrue(self)) return list; /* whatever it is, and whatever the arguments are */
    if (!all->num_pos && attribute) {
        if (all->num_named > 1u + (fallback != NULL))
            jinja_fail(c, RAD_E_INVAL, "map has no such argument");
        if (fallback) otherwise = *fallback;
    } else {
        if (!all->num_pos) jinja_fail(c, RAD_E_INVAL, "map wants a filter or an attribute");
        const jstr *name = jwant_str(c, all->pos[0], "map");
        filter = jinja_find_filter(name);
        if (!filter)
            jinja_fail(c, RAD_E_UNSUPPORTED, "there is no filter '%.*s'",
                       (int)RAD_MIN(name->len, 60u), name->p);
        rest = behind(all, 1);
    }
    const jlist *from = jiterate(c, self);
    for (uint32_t i = 0; i < from->len; i++) {
        jval item = from->items[i];
        jsteps(c, 1);
        jlist_push(c, list.u.l,
                   filter ? jcall_function(c, filter, item, &rest)
                          : dig(c, item, *attribute, otherwise));
    }
    return list;
}

static jval choose(jctx *c, jval self, const jargs *all, bool by_attribute, bool wanted)
{
    jval list = iterator(c), none = {.type = J_UNSET};
    uint32_t skip = by_attribute;
    const jfunction *test = NULL;
    if (!jtrue(self)) return list;
    if (by_attribute && !all->num_pos) jinja_fail(c, RAD_E_INVAL, "selectattr wants an attribute");
    if (all->num_pos > skip) {
        const jstr *name = jwant_str(c, all->pos[skip], "select");
        test = jinja_find_test(name);
        if (!test)
            jinja_fail(c, RAD_E_UNSUPPORTED, "there is no test '%.*s'",
                       (int)RAD_MIN(name->len, 60u), name->p);
        skip++;
    }
    jargs rest = behind(all, skip);
    const jlist *from = jiterate(c, self);
    for (uint32_t i = 0; i < from->len; i++) {
        jval item = from->items[i], what = by_attribute ? dig(c, item, all->pos[0], none) : item;
        jsteps(c, 1);
        bool yes = jtrue(test ? jcall_function(c, test, what, &rest) : what);
        if (yes == wanted) jlist_push(c, list.u.l, item);
    }
    return list;
}

jval jfilter_select(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)args;
    return choose(c, self, all, false, true);
}

jval jfilter_reject(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)args;
    return choose(c, self, all, false, false);
}

jval jfilter_selectattr(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)args;
    return choose(c, self, all, true, true);
}

jval jfilter_rejectattr(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)args;
    return choose(c, self, all, true, false);
}

/* ---- order ---- */

/* What an item is sorted by: its attributes, texts in lower case unless case matters. */
static jval sort_key(jctx *c, jval item, jval attribute, bool cased)
{
    jval none = {.type = J_UNSET}, key = some(attribute) ? dig(c, item, attribute, none) : item;
    return key.type == J_STR && !cased ? jchange_case(c, key.u.s, LOWER) : key;
}

/* sort takes several attributes, "a,b". */
static jval sort_keys(jctx *c, jval item, jval attribute, bool cased)
{
    if (attribute.type == J_STR) jwork(c, attribute.u.s->len);
    if (attribute.type != J_STR || !memchr(attribute.u.s->p, ',', attribute.u.s->len))
        return sort_key(c, item, attribute, cased);
    const jstr *s = attribute.u.s;
    jval keys = jlist_new(c, LIST, 0);
    for (size_t at = 0; at <= s->len;) {
        jwork(c, JINJA_CALL);
        const char *comma = memchr(s->p + at, ',', s->len - at);
        size_t end = comma ? (size_t)(comma - s->p) : s->len;
        jlist_push(c, keys.u.l, sort_key(c, item, jsub(c, s, at, end - at), cased));
        at = end + 1;
    }
    return keys;
}

/* Merge sort: stable, and never quadratic. Sorts order[] by keys[]. */
static void merge_sort(jctx *c, const jval *keys, uint32_t *order, uint32_t *scratch, uint32_t n,
                       bool reverse)
{
    if (n < 2) return;
    uint32_t half = n / 2;
    merge_sort(c, keys, order, scratch, half, reverse);
    merge_sort(c, keys, order + half, scratch, n - half, reverse);
    memcpy(scratch, order, half * sizeof *order);
    for (uint32_t a = 0, b = half, to = 0; a < half; to++) {
        bool second = false;
        jsteps(c, 1);
        if (b < n) {
            jval x = keys[scratch[a]], y = keys[order[b]];
            second = reverse ? jcompare(c, x, y, "<") == -1 : jcompare(c, y, x, "<") == -1;
        }
        order[to] = second ? order[b++] : scratch[a++];
    }
}

static jval sorted(jctx *c, const jlist *from, const jval *keys, bool reverse)
{
    uint32_t *order = jalloc(c, from->len, 2 * sizeof *order);
    jwork(c, (uint64_t)from->len * sizeof *order);
    for (uint32_t i = 0; i < from->len; i++)
        order[i] = i;
    merge_sort(c, keys, order, order + from->len, from->len, reverse);
    jval list = jlist_new(c, LIST, from->len);
    for (uint32_t i = 0; i < from->len; i++)
        jlist_push(c, list.u.l, from->items[order[i]]);
    return list;
}

static jval *keys_of(jctx *c, const jlist *from, jval attribute, bool cased)
{
    jval *keys = jalloc(c, from->len, sizeof *keys);
    for (uint32_t i = 0; i < from->len; i++) {
        jsteps(c, 1);
        keys[i] = sort_keys(c, from->items[i], attribute, cased);
    }
    return keys;
}

jval jfilter_sort(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)all;
    const jlist *from = jiterate(c, self);
    bool cased = given(args[1]) && jtrue(args[1]);
    return sorted(c, from, keys_of(c, from, args[2], cased), given(args[0]) && jtrue(args[0]));
}

jval jfilter_dictsort(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)all;
    if (self.type != J_DICT)
        jinja_fail(c, RAD_E_INVAL, "dictsort wants a dict, not a %s", jtype_name(self));
    bool cased = given(args[0]) && jtrue(args[0]);
    const jstr *by = given(args[1]) ? jwant_str(c, args[1], "dictsort") : jtext(c, "key").u.s;
    bool value = by->len == 5 && !memcmp(by->p, "value", 5);
    if (!value && !(by->len == 3 && !memcmp(by->p, "key", 3)))
        jinja_fail(c, RAD_E_INVAL, "dictsort sorts by 'key' or 'value'");
    jval pairs = jfilter_items(c, self, NULL, NULL);
    jval *keys = keys_of(c, pairs.u.l, jint(value), cased);
    return sorted(c, pairs.u.l, keys, given(args[2]) && jtrue(args[2]));
}

jval jfilter_unique(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)all;
    const jlist *from = jiterate(c, self);
    jdict *seen = jdict_new(c, J_DICT).u.d;
    jval list = iterator(c);
    for (uint32_t i = 0; i < from->len; i++) {
        jval key = sort_key(c, from->items[i], args[1], given(args[0]) && jtrue(args[0]));
        jsteps(c, 1);
        if (jdict_find(c, seen, key)) continue;
        jdict_append(c, seen, key, jnone());
        jlist_push(c, list.u.l, from->items[i]);
    }
    return list;
}

static jval extreme(jctx *c, jval self, const jval *args, int wanted)
{
    const jlist *from = jiterate(c, self);
    jval best = jundefined("an end of nothing"), best_key = best;
    for (uint32_t i = 0; i < from->len; i++) {
        jval key = sort_key(c, from->items[i], args[1], given(args[0]) && jtrue(args[0]));
        jsteps(c, 1);
        if (i && jcompare(c, key, best_key, "<") != wanted) continue;
        best = from->items[i];
        best_key = key;
    }
    return best;
}

jval jfilter_min(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)all;
    return extreme(c, self, args, -1);
}

jval jfilter_max(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)all;
    return extreme(c, self, args, 1);
}

/* ---- groups ---- */

jval jfilter_batch(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)all;
    int64_t size = jwant_int(c, args[0], "batch");
    const jlist *from = jiterate(c, self);
    jval list = iterator(c);
    if (size < 1) jinja_fail(c, RAD_E_INVAL, "batch: the size must be at least 1");
    for (uint32_t i = 0; i < from->len;) {
        jval batch = jlist_new(c, LIST, 0);
        for (int64_t k = 0; k < size && (i < from->len || some(args[1])); k++) {
            jsteps(c, 1);
            jlist_push(c, batch.u.l, i < from->len ? from->items[i] : args[1]);
            i += i < from->len;
        }
        jlist_push(c, list.u.l, batch);
    }
    return list;
}
