/* jinja_ast.h - tokens and the tree of a parsed template. */
#ifndef TEXT_JINJA_AST_H
#define TEXT_JINJA_AST_H

#include "text/jinja_value.h"

typedef enum jtoken_type {
    T_END,
    T_DATA,
    T_VAR_BEGIN,
    T_VAR_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_STRING,
    T_NUMBER,
    T_OP /* op: its characters, two as first | second << 8 */
} jtoken_type;

typedef struct jtoken {
    uint8_t type;
    uint16_t op;
    uint32_t line;
    const jstr *s; /* DATA, NAME, STRING */
    jval number;
} jtoken;

#define JOP(a, b) ((uint16_t)((unsigned char)(a) | (unsigned char)(b) << 8))

/* All tokens of a source whose newlines are \n, the last one T_END. Fails in words. */
jtoken *jinja_lex(jctx *c, const char *source, size_t len);

typedef enum jkind {
    /* statements */
    N_TEXT,         /* value */
    N_PRINT,        /* a */
    N_IF,           /* a: condition, list, other: else */
    N_FOR,          /* a: target, b: iterable, c: filter or NULL, list, other: else */
    N_SET,          /* a: target, b: value */
    N_SET_BLOCK,    /* a: target, b: filters around N_BODY or NULL, list */
    N_FILTER_BLOCK, /* b, list: as above */
    N_MACRO,        /* name, other: parameters (N_NAME, b: default), list, op: JMACRO_ flags */
    N_CALL_BLOCK,   /* a: N_CALL, b: an N_MACRO, the caller */
    N_WITH,         /* other: N_SET ..., list; generation blocks have no N_SET */
    N_BREAK,
    N_CONTINUE,
    /* expressions */
    N_CONST,    /* value */
    N_NAME,     /* name, id */
    N_NSREF,    /* id.name: a target */
    N_TUPLE,    /* list */
    N_LIST,     /* list */
    N_DICT,     /* list: key, value, key, ... */
    N_GETATTR,  /* a.name */
    N_GETITEM,  /* a[b] */
    N_SLICE,    /* a:b:c as the b of N_GETITEM, each may be NULL */
    N_CALL,     /* a(list) */
    N_KEYWORD,  /* name=a, in a list of arguments */
    N_STAR,     /* *a */
    N_STARSTAR, /* **a */
    N_FILTER,   /* a|function(list) */
    N_TEST,     /* a is function(list) */
    N_BODY,     /* what a block gave: the innermost a of its filters */
    N_NOT,
    N_NEG,
    N_POS,
    N_AND,
    N_OR,
    N_COND,    /* a if b else c (or NULL) */
    N_COMPARE, /* a, list of N_OPERAND */
    N_OPERAND, /* op: JOP of the operator, 'i' in, 'n' not in; a */
    N_CONCAT,  /* list */
    N_BINARY   /* op: joperator, a, b */
} jkind;

enum { JMACRO_CALLER = 1, JMACRO_VARARGS = 2, JMACRO_KWARGS = 4 }; /* what its body names */

typedef struct jnode {
    uint8_t kind;
    uint16_t op;
    uint32_t line;
    uint32_t id; /* of a name */
    const jstr *name;
    struct jnode *a, *b, *c;
    struct jnode *list, *other, *next;
    jval value;
    const jfunction *function;
} jnode;

/* Names are numbers at run time. */
typedef struct jnames {
    const jstr **names;
    uint32_t len, cap;
    const jnode *unknown; /* the first filter or test that is not there; NULL: none */
    const char *unknown_is;
} jnames;

enum { ID_LOOP, ID_CALLER, ID_VARARGS, ID_KWARGS, NUM_OWN_IDS };
uint32_t jnames_id(jctx *c, jnames *names, const char *p, size_t len);

typedef struct jparser {
    jctx *c;
    jtoken *at;
    jnames *names;
    uint32_t loops;       /* around us, within this macro */
    uint16_t macro_flags; /* of the macro around us */
} jparser;

/* Statements up to the end, or to a tag of that name; see jinja_parse.c. */
jnode *jparse_template(jctx *c, jtoken *tokens, jnames *names);

/* jinja_parse_expr.c */
jnode *jparse_expression(jparser *p, bool with_condition);
jnode *jparse_tuple(jparser *p, bool with_condition, bool parentheses);
jnode *jparse_filters(jparser *p, jnode *input, bool at_name);
jnode *jparse_primary(jparser *p);

/* jinja_parse_tokens.c */
bool jtoken_is(const jparser *p, const char *name);
bool jtoken_op(const jparser *p, uint16_t op);
bool jskip_op(jparser *p, uint16_t op); /* if it is there */
bool jskip_name(jparser *p, const char *name);
void jexpect_op(jparser *p, uint16_t op);
const jstr *jexpect_name(jparser *p);
_Noreturn void junexpected(jparser *p, const char *wanted);
jnode *jnode_new(jparser *p, jkind kind);
jnode *jnode_name(jparser *p, const jstr *name);
jnode *jnode_with(jparser *p, jkind kind, uint16_t op, jnode *a);

/* ---- running ---- */

typedef struct jbinding {
    struct jbinding *next;
    uint32_t id;
    jval value;
} jbinding;

typedef struct jscope {
    jbinding *first;
    struct jscope *parent;
} jscope;

struct jinja_template {
    jctx c; /* owns the tree; not touched by rendering */
    jnode *root;
    const jtoken *tokens; /* up to T_END */
    const char *source;
    size_t source_len;
    jnames names;
    char unknown[100]; /* jinja_unknown */
};

typedef struct jmacro {
    const jnode *node;
    jscope *scope; /* where it was defined */
} jmacro;

typedef enum jflow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE } jflow;

void jset(jctx *c, jscope *s, uint32_t id, jval v);
const jval *jscope_find(jctx *c, const jscope *s, uint32_t id); /* innermost; NULL: none */
jval jeval(jctx *c, const jnode *n);
jflow jexec(jctx *c, const jnode *first, jbuf *out);
jval jmacro_call(jctx *c, jmacro *m, const jargs *args, const jval *caller);
void jeval_args(jctx *c, const jnode *list, jargs *out);
jval jcall_node(jctx *c, const jnode *call, const jval *caller);
jval jfilter_node(jctx *c, const jnode *filter, jval body);

#endif
