/* jinja_value.h - what templates compute with, and where it lives.
 *
 * Everything that parsing or rendering makes lies in one arena and is freed at once. So an
 * error may leave from any depth by longjmp, with nothing to undo: jinja_fail does not
 * return, and functions here hand out values and no statuses.
 *
 * A string's bytes are the template's (CLEAN), a conversation's (USER), or both (MIXED, with
 * one mark per byte); all operations carry that along.
 *
 * Invariant: strings are UTF-8, immutable, and at most limit.output bytes long. */
#ifndef TEXT_JINJA_VALUE_H
#define TEXT_JINJA_VALUE_H

#include "text/jinja.h"

#include <setjmp.h>

typedef enum jtaint { CLEAN, USER, MIXED } jtaint;

typedef struct jstr {
    const char *p;
    const uint8_t *mark; /* MIXED only */
    uint32_t len;
    uint8_t taint;
    bool markup; /* Python's Markup, see jinja_markup.c */
} jstr;

typedef enum jtype {
    J_UNDEFINED, /* u.hint says what was not there */
    J_NONE,
    J_BOOL,
    J_INT,
    J_FLOAT,
    J_STR,
    J_LIST, /* of a kind below */
    J_DICT,
    J_NAMESPACE, /* u.d, the one thing that `set` may change */
    J_MACRO,
    J_FUNCTION, /* range, dict, ... */
    J_METHOD,
    J_LOOP,
    J_UNSET /* an argument that was not given; never seen by templates */
} jtype;

typedef enum jlist_kind {
    LIST,
    TUPLE,
    RANGE,
    DICT_KEYS,
    DICT_VALUES,
    DICT_ITEMS,
    ITERATOR /* Python's generators and iterators: can be walked once, have no length */
} jlist_kind;

typedef struct jval {
    uint8_t type;
    union {
        const char *hint;
        bool b;
        int64_t i;
        double f;
        const jstr *s;
        struct jlist *l;
        struct jdict *d;
        struct jmacro *macro;
        const struct jfunction *function;
        struct jmethod *method;
        struct jloop *loop;
    } u;
} jval;

typedef struct jlist {
    jval *items;
    uint32_t len, cap;
    uint8_t kind;
    uint32_t taken;            /* ITERATOR: how many were walked over */
    int64_t start, stop, step; /* RANGE, for its looks */
} jlist;

typedef struct jdict {
    jval *keys, *values; /* in the order of insertion */
    uint32_t len, cap;
} jdict;

/* The arguments of a call. */
typedef struct jargs {
    const jval *pos;
    uint32_t num_pos;
    const jstr **names; /* of the keyword arguments */
    const jval *named;
    uint32_t num_named;
} jargs;

struct jscope;

/* One parse or one rendering. */
typedef struct jctx {
    rad_env env;
    struct jchunk *chunks;
    size_t memory, max_memory;
    size_t max_string;
    uint64_t steps; /* left */
    uint64_t max_steps;
    uint32_t parts; /* of a step: work that was done and is not paid for yet */
    uint32_t depth;
    uint32_t line;
    rad_status status;
    bool raised;
    rad_error *err;
    jmp_buf out;

    struct jscope *scope; /* rendering */
    int64_t now_unix;
} jctx;

enum { JINJA_MAX_DEPTH = 400, JINJA_MAX_RANGE = 100000 };

/* ---- memory, limits, errors ---- */

void jctx_init(jctx *c, const rad_env *env, const jinja_limits *limits, rad_error *err);
void jctx_fini(jctx *c);
void *jalloc(jctx *c, size_t count, size_t size); /* zeroed */
_Noreturn void jinja_fail(jctx *c, rad_status status, const char *fmt, ...) RAD_PRINTF(3, 4);
void jsteps(jctx *c, uint64_t n);

/* Work that no node stands for, in 256ths of a step: so that a step is always some 20 ns, whatever
 * a template makes of long texts and lists. A byte that is copied, compared or skipped is one part.
 */
enum {
    JINJA_STEP = 256,
    JINJA_LOOK = 16,    /* a character that is decoded, an item that is passed */
    JINJA_CHAR = 64,    /* a character whose class or case is looked up */
    JINJA_CALL = 64,    /* an append, an allocation, a candidate of a search */
    JINJA_PRINT = 2048, /* a number that is written or read */
};
void jwork(jctx *c, uint64_t parts);
void jenter(jctx *c); /* one level deeper; jleave comes back */
static inline void jleave(jctx *c)
{
    c->depth--;
}

/* ---- making values ---- */

static inline jval jundefined(const char *hint)
{
    return (jval){.type = J_UNDEFINED, .u.hint = hint ? hint : "it"};
}
static inline jval jnone(void)
{
    return (jval){.type = J_NONE};
}
static inline jval jbool(bool b)
{
    return (jval){.type = J_BOOL, .u.b = b};
}
static inline jval jint(int64_t i)
{
    return (jval){.type = J_INT, .u.i = i};
}
static inline jval jfloat(double f)
{
    return (jval){.type = J_FLOAT, .u.f = f};
}
jval jstring(jctx *c, const char *p, size_t len, const jstr *like, size_t at);
jval jtext(jctx *c, const char *text);                    /* CLEAN, must live as long as c */
jval jsub(jctx *c, const jstr *s, size_t at, size_t len); /* bytes of s, Markup if it is */
jval jlist_new(jctx *c, jlist_kind kind, uint32_t cap);
void jlist_push(jctx *c, jlist *l, jval v);
jval jpair(jctx *c, jval a, jval b);
jval jdict_new(jctx *c, jtype type);
void jdict_set(jctx *c, jdict *d, jval key, jval value);    /* fails for unhashable keys */
void jdict_append(jctx *c, jdict *d, jval key, jval value); /* the key is new: not looked for */
const jval *jdict_find(jctx *c, const jdict *d, jval key);  /* NULL: no such key */
const jval *jdict_get(jctx *c, const jdict *d, const char *p, size_t len);
jval jfrom_json(jctx *c, const json_t *json, bool user);

/* ---- Markup ---- */

jval jmarkup(jctx *c, const jstr *s); /* s as Markup; as a str: */
jval jplain(jctx *c, const jstr *s);
jval jlike(jctx *c, const jstr *self, jval v); /* the str v as what `self` is */
const jstr *jescaped(jctx *c, jval v);         /* str(v), escaped unless it is Markup */
/* An argument of a method of `self`: a str, escaped if self is Markup. */
const jstr *jargument(jctx *c, const jstr *self, jval v, const char *who);

/* ---- strings in the making ---- */

typedef struct jbuf {
    jctx *c;
    char *p;
    uint8_t *mark; /* only once the bytes are of both origins */
    size_t len, cap;
    uint8_t taint;
} jbuf;

void jbuf_add(jbuf *b, const char *p, size_t len, jtaint taint, const uint8_t *mark);
void jbuf_text(jbuf *b, const char *text);           /* CLEAN */
void jbuf_bytes(jbuf *b, const char *p, size_t len); /* CLEAN */
void jbuf_str(jbuf *b, const jstr *s);
void jbuf_sub(jbuf *b, const jstr *s, size_t at, size_t len);
void jbuf_show(jbuf *b, jval v); /* as str() in Python */
void jbuf_repr(jbuf *b, jval v); /* as repr() */
jval jbuf_value(jbuf *b);

/* ---- questions ---- */

const char *jtype_name(jval v); /* "str", "int", ... as Python calls them */
bool jtrue(jval v);
bool jequal(jctx *c, jval a, jval b);
int jcompare(jctx *c, jval a, jval b, const char *op); /* fails where Python has no order */
bool jcontains(jctx *c, jval item, jval in);
bool jis_number(jval v); /* bool, int, float */
bool jis_int(jval v);    /* bool, int */
int64_t jas_int(jval v);
double jas_float(jval v);
const jstr *jshow(jctx *c, jval v); /* str() */
int64_t jlength(jctx *c, jval v);   /* len() */
jlist *jiterate(jctx *c, jval v);   /* list(v); an ITERATOR is used up */
const jstr *jwant_str(jctx *c, jval v, const char *who);
int64_t jwant_int(jctx *c, jval v, const char *who);
void jformat_float(double f, char *text, size_t room); /* repr(); room >= 32 */

/* The first place of `part` in p[0..len), or NULL; the last one. */
const char *jfind_text(jctx *c, const char *p, size_t len, const jstr *part);
const char *jfind_last(jctx *c, const char *p, size_t len, const jstr *part);

/* Characters: how many; the byte where character n (0..count) begins. */
size_t jchars(const jstr *s);
size_t jchar_at(const jstr *s, size_t n);
bool jis_space(uint32_t code); /* str.isspace */

/* ---- calls ---- */

/* `spec` names the parameters, "width,first?,blank?": those with ? may be missing and are
 * then J_UNSET. Fails for arguments too many, unknown, twice or missing. */
void jbind(jctx *c, const char *who, const char *spec, const jargs *args, jval *out);

typedef jval (*jcallee)(jctx *c, jval self, const jval *args, const jargs *all);

/* A filter, test, method or global function. spec NULL: looks at `all` itself. */
typedef struct jfunction {
    const char *name;
    jcallee call;
    const char *spec;
} jfunction;

enum { JINJA_MAX_PARAMS = 8 };
jval jcall_function(jctx *c, const jfunction *f, jval self, const jargs *args);

typedef struct jmethod {
    jval self;
    const jfunction *function;
} jmethod;

const jfunction *jinja_find_filter(const jstr *name); /* NULL: none */
const jfunction *jinja_find_test(const jstr *name);
const jfunction *jinja_find_global(const jstr *name);
const jfunction *jfind(const jfunction *table, size_t count, const char *name, size_t len);

/* v.name: attributes and methods, then items, as Jinja's environment does. jitem: v[key], items
 * first. */
jval jattribute(jctx *c, jval v, const jstr *name);
jval jitem(jctx *c, jval v, jval key);
jval jslice(jctx *c, jval v, jval start, jval stop, jval step);
jval jcall(jctx *c, jval callee, const jargs *args);
jval jstr_method(jctx *c, jval v, const char *name, size_t len); /* J_UNSET: none */
jval jdict_method(jctx *c, jval v, const char *name, size_t len);
jval jlist_method(jctx *c, jval v, const char *name, size_t len);
jval jnumber_method(jctx *c, jval v, const char *name, size_t len);
jval jloop_attribute(jctx *c, struct jloop *loop, const char *name, size_t len);

/* ---- operators and what filters share ---- */

typedef enum joperator { OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD, OP_POW } joperator;
jval jbinary(jctx *c, joperator op, jval a, jval b);
jval jnegate(jctx *c, jval v);
jval jpercent(jctx *c, const jstr *format, jval args); /* "%s" % args */
jval jto_json(jctx *c, jval v, const jval *args); /* ensure_ascii, indent, separators, sort_keys */
jval jsplit_lines(jctx *c, const jstr *s, bool keep_ends);
jval jstrip(jctx *c, const jstr *s, const jstr *chars, bool left, bool right);
jval jreplace(jctx *c, const jstr *s, const jstr *old, const jstr *new, int64_t count);
typedef enum jcase { UPPER, LOWER, CAPITALIZE, TITLE, SWAP } jcase;
jval jchange_case(jctx *c, const jstr *s, jcase how);
bool jall_case(jctx *c, const jstr *s, jcase how); /* isupper, islower */
jval jparse_int(jctx *c, const jstr *s, int base); /* J_UNSET: not a number */
jval jparse_float(jctx *c, const jstr *s);
jval jround(jctx *c, jval v, int64_t digits);

#endif
