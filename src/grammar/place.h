/* place.h - where a text has got to: states, each with the stacks that it may have come by.
 *
 * A place is a list of threads (state, stacks). A text is continued by whatever continues one of
 * them, so a mask is the union over threads. Deterministic grammars have one thread, sometimes two.
 *
 * Stacks are kept as sets, so that ambiguity does not multiply: a set is a list of cells, ascending
 * by `back`, and a cell stands for the stacks that have `back` on top of one of the set `below`.
 * Cells are made once (hashed), so equal sets have equal numbers, and what is below a cell has a
 * lower number than it. Cells go away last come, first gone (stacks_cut), or by a collection that
 * the owner of all the places does.
 *
 *     {a on top of the bottom, b on top of a on top of the bottom}
 *       = cell(a, below: BOTTOM, beside: cell(b, below: cell(a, BOTTOM), beside: none))
 *
 * Private to this room. */
#ifndef GRAMMAR_PLACE_H
#define GRAMMAR_PLACE_H

#include "grammar/automaton.h"

enum {
    NO_STACKS = 0, /* the empty set */
    BOTTOM = 1,    /* the set of the empty stack alone */
    MOST_THREADS = 512,
    MOST_CELLS = 1 << 20,
    MOST_TURNS = 100000, /* calls and returns for one byte */
    MERGE_DEPTH = 200,   /* sets that differ further down stay apart */
    MERGE_STEPS = 50000, /* of uniting two sets */
    MERGE_NOTES = 1024   /* pairs that are remembered while uniting */
};

typedef struct stack_cell {
    uint32_t back, below, beside;
} stack_cell;

typedef struct merge_note {
    uint32_t a, b, both;
} merge_note;

typedef struct stacks {
    rad_env env;
    stack_cell *cells;
    uint32_t count, cap;
    uint32_t *slots; /* cell, 0: free */
    uint32_t cap_slots;
    merge_note *notes; /* [MERGE_NOTES], by a hash of a and b; NULL until sets are united */
    uint32_t merge_steps;
    rad_status status; /* RAD_E_NOMEM, RAD_E_LIMIT */
} stacks;

bool stacks_init(stacks *s, const rad_env *env);
void stacks_fini(stacks *s);
bool stacks_copy(stacks *to, const stacks *from); /* `to` is zeroed */
void stacks_cut(stacks *s, uint32_t count);       /* to what there was at that count */
/* Keeps cells with a mark, and puts into marks[] what each is called now. */
void stacks_collect(stacks *s, uint32_t *marks);

uint32_t stacks_push(stacks *s, uint32_t back, uint32_t below);
/* Both; NO_STACKS when they differ too deep down (or s->status). */
uint32_t stacks_unite(stacks *s, uint32_t a, uint32_t b);

typedef struct thread {
    uint32_t state, stacks;
} thread;

typedef struct threads {
    thread *at;
    uint32_t count, cap;
} threads;

/* What places are made in: one for each thread that walks. */
typedef struct walker {
    const gr_automaton *a;
    stacks *stacks;
    threads work;
    bool ended; /* what was made last has the bottom: the text may end */
    rad_status status;
} walker;

void walker_fini(walker *w);

/* Room for `want` elements in *array, of which *cap are there. */
bool place_grow(const rad_env *env, void *array, uint32_t *cap, uint32_t want, size_t element);

/* Room for `want` threads. */
bool threads_grow(walker *w, threads *t, uint32_t want);

/* Adds to out->at[from..] the threads of (state, stacks) that read; w->ended where the bottom is
 * met. False: w->status. */
bool place_enter(walker *w, uint32_t state, uint32_t stack, threads *out, uint32_t from);

/* The same of what lies on top of the stacks of a rule that has ended. */
bool place_return(walker *w, uint32_t stack, threads *out, uint32_t from);

/* Appends to `out` the threads behind `byte`, of out->at[first..first + count). Sets w->ended. */
bool place_step(walker *w, threads *out, uint32_t first, uint32_t count, unsigned char byte);

#endif
