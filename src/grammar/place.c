/* place.c - the stacks of a grammar's places, and how a byte leads from one place to the next. */
#include "grammar/place.h"

#include "base/mix64.h"

/* ---- stacks ---- */

bool place_grow(const rad_env *env, void *array, uint32_t *cap, uint32_t want, size_t element)
{
    void *old;
    if (want <= *cap) return true;
    memcpy(&old, array, sizeof old); /* a pointer to some type, not to void */
    uint32_t new_cap = RAD_MAX(*cap * 2, 16u);
    while (new_cap < want)
        new_cap *= 2;
    void *memory = rad_alloc(env, rad_mul(new_cap, element));
    if (!memory) return false;
    if (old) memcpy(memory, old, (size_t)*cap * element);
    rad_free(env, old, (size_t)*cap * element);
    memcpy(array, &memory, sizeof memory);
    *cap = new_cap;
    return true;
}

static uint32_t cell_hash(const stack_cell *c)
{
    return (uint32_t)mix64(((uint64_t)c->back << 32 | c->below) ^
                           (uint64_t)c->beside * 0x9e3779b97f4a7c15u);
}

static void put_slot(stacks *s, uint32_t id)
{
    uint32_t h = cell_hash(&s->cells[id]);
    while (s->slots[h & (s->cap_slots - 1)])
        h++;
    s->slots[h & (s->cap_slots - 1)] = id;
}

static bool make_slots(stacks *s, uint32_t cap)
{
    uint32_t *slots = rad_alloc(&s->env, (size_t)cap * sizeof *slots);
    if (!slots) return false;
    rad_free(&s->env, s->slots, (size_t)s->cap_slots * sizeof *s->slots);
    s->slots = slots;
    s->cap_slots = cap;
    for (uint32_t id = BOTTOM + 1; id < s->count; id++)
        put_slot(s, id);
    return true;
}

bool stacks_init(stacks *s, const rad_env *env)
{
    *s = (stacks){.env = *env, .count = BOTTOM + 1};
    bool ok = place_grow(env, &s->cells, &s->cap, 16, sizeof *s->cells);
    if (!ok || !make_slots(s, 64)) return false;
    s->cells[BOTTOM] = (stack_cell){.back = NOWHERE};
    return true;
}

void stacks_fini(stacks *s)
{
    rad_free(&s->env, s->cells, (size_t)s->cap * sizeof *s->cells);
    rad_free(&s->env, s->slots, (size_t)s->cap_slots * sizeof *s->slots);
    rad_free(&s->env, s->notes, MERGE_NOTES * sizeof *s->notes);
    *s = (stacks){0};
}

bool stacks_copy(stacks *to, const stacks *from)
{
    *to = (stacks){
        .env = from->env, .cap = from->cap, .count = from->count, .cap_slots = from->cap_slots};
    to->cells = rad_alloc(&to->env, (size_t)to->cap * sizeof *to->cells);
    to->slots = rad_alloc(&to->env, (size_t)to->cap_slots * sizeof *to->slots);
    if (!to->cells || !to->slots) return false;
    memcpy(to->cells, from->cells, (size_t)to->count * sizeof *to->cells);
    memcpy(to->slots, from->slots, (size_t)to->cap_slots * sizeof *to->slots);
    return true;
}

/* Numbers of cells are about to mean others. */
static void forget_notes(stacks *s)
{
    if (s->notes) memset(s->notes, 0, MERGE_NOTES * sizeof *s->notes);
}

void stacks_cut(stacks *s, uint32_t count)
{
    if (s->count > count) forget_notes(s);
    /* In the reverse order of their coming: a cell that came last stands in no other's way. */
    while (s->count > count) {
        uint32_t id = --s->count, h = cell_hash(&s->cells[id]);
        while (s->slots[h & (s->cap_slots - 1)] != id)
            h++;
        s->slots[h & (s->cap_slots - 1)] = 0;
    }
    s->status = RAD_OK;
}

void stacks_collect(stacks *s, uint32_t *marks)
{
    for (uint32_t id = s->count; id-- > BOTTOM + 1;)
        if (marks[id]) marks[s->cells[id].below] = marks[s->cells[id].beside] = 1;
    uint32_t kept = BOTTOM + 1;
    marks[NO_STACKS] = NO_STACKS;
    marks[BOTTOM] = BOTTOM;
    for (uint32_t id = BOTTOM + 1; id < s->count; id++) {
        if (!marks[id]) continue;
        stack_cell c = s->cells[id];
        s->cells[kept] = (stack_cell){c.back, marks[c.below], marks[c.beside]};
        marks[id] = kept++;
    }
    s->count = kept;
    forget_notes(s);
    memset(s->slots, 0, (size_t)s->cap_slots * sizeof *s->slots);
    for (uint32_t id = BOTTOM + 1; id < kept; id++)
        put_slot(s, id);
}

static uint32_t make_cell(stacks *s, uint32_t back, uint32_t below, uint32_t beside)
{
    stack_cell c = {back, below, beside};
    uint32_t h = cell_hash(&c);
    for (uint32_t id; (id = s->slots[h & (s->cap_slots - 1)]); h++)
        if (memcmp(&s->cells[id], &c, sizeof c) == 0) return id;
    if (s->count >= MOST_CELLS) {
        s->status = RAD_E_LIMIT;
        return NO_STACKS;
    }
    bool ok = place_grow(&s->env, &s->cells, &s->cap, s->count + 1, sizeof *s->cells);
    if (!ok || (s->count * 2 >= s->cap_slots && !make_slots(s, s->cap_slots * 2))) {
        s->status = RAD_E_NOMEM;
        return NO_STACKS;
    }
    s->cells[s->count] = c;
    put_slot(s, s->count);
    return s->count++;
}

uint32_t stacks_push(stacks *s, uint32_t back, uint32_t below)
{
    return make_cell(s, back, below, NO_STACKS);
}

/* Sets share what lies below, so without notes a pair would be united once for each way to it. */
static uint32_t unite(stacks *s, uint32_t a, uint32_t b, uint32_t depth, bool *deep)
{
    if (a == b || !b) return a;
    if (!a) return b;
    if (depth == MERGE_DEPTH || s->merge_steps++ == MERGE_STEPS) {
        *deep = true;
        return NO_STACKS;
    }
    merge_note *note =
        &s->notes[mix64((uint64_t)RAD_MIN(a, b) << 32 | RAD_MAX(a, b)) % MERGE_NOTES];
    if (note->a == RAD_MIN(a, b) && note->b == RAD_MAX(a, b)) return note->both;
    const stack_cell x = a == BOTTOM ? (stack_cell){NOWHERE, 0, 0} : s->cells[a];
    const stack_cell y = b == BOTTOM ? (stack_cell){NOWHERE, 0, 0} : s->cells[b];
    stack_cell c = x.back <= y.back ? x : y;
    if (x.back == y.back) c.below = unite(s, x.below, y.below, depth + 1, deep);
    if (!*deep)
        c.beside = unite(s, x.back <= y.back ? x.beside : a, y.back <= x.back ? y.beside : b,
                         depth + 1, deep);
    if (*deep || s->status) return NO_STACKS;
    uint32_t both = c.back == NOWHERE ? BOTTOM : make_cell(s, c.back, c.below, c.beside);
    if (!s->status) *note = (merge_note){RAD_MIN(a, b), RAD_MAX(a, b), both};
    return both;
}

uint32_t stacks_unite(stacks *s, uint32_t a, uint32_t b)
{
    bool deep = false;
    if (a == b || !b) return a;
    if (!a) return b;
    if (!s->notes) s->notes = rad_alloc(&s->env, MERGE_NOTES * sizeof *s->notes);
    if (!s->notes) {
        s->status = RAD_E_NOMEM;
        return NO_STACKS;
    }
    s->merge_steps = 0;
    uint32_t both = unite(s, a, b, 0, &deep);
    return deep ? NO_STACKS : both;
}

/* ---- threads ---- */

void walker_fini(walker *w)
{
    rad_free(&w->stacks->env, w->work.at, (size_t)w->work.cap * sizeof *w->work.at);
    w->work = (threads){0};
}

bool threads_grow(walker *w, threads *t, uint32_t want)
{
    bool ok = place_grow(&w->stacks->env, &t->at, &t->cap, want, sizeof *t->at);
    if (!ok) w->status = RAD_E_NOMEM;
    return ok;
}

/* Puts a thread into list[from..]: into one of the same state, where there is one. */
static bool put_thread(walker *w, threads *list, uint32_t from, uint32_t state, uint32_t stack)
{
    for (uint32_t i = from; i < list->count; i++) {
        if (list->at[i].state != state) continue;
        if (list->at[i].stacks == stack) return true;
        uint32_t both = stacks_unite(w->stacks, list->at[i].stacks, stack);
        if (w->stacks->status) break;
        if (!both) continue;
        list->at[i].stacks = both;
        return true;
    }
    if (w->stacks->status) {
        w->status = w->stacks->status;
        return false;
    }
    if (list->count - from >= MOST_THREADS) {
        w->status = RAD_E_LIMIT;
        return false;
    }
    if (!threads_grow(w, list, list->count + 1)) return false;
    list->at[list->count++] = (thread){state, stack};
    return true;
}

/* One more has come of what the cell counts: another begins, or what is behind them all. */
static bool count_one(walker *w, stack_cell cell, uint32_t from)
{
    const gr_counter *k = automaton_counter(w->a, cell.back);
    const uint32_t come = cell.back - k->first + 1;
    const stack_cell behind = w->stacks->cells[cell.below]; /* pushed with it, and alone */
    if (come >= k->min && !put_thread(w, &w->work, from, behind.back, behind.below)) return false;
    if (come >= k->max) return true;
    const uint32_t count = k->max == NO_END ? RAD_MIN(come, k->min) : come;
    const uint32_t stack = stacks_push(w->stacks, k->first + count, cell.below);
    w->status = w->stacks->status;
    return !w->status && put_thread(w, &w->work, from, k->start, stack);
}

/* Puts what is on top of the stacks into w->work.at[from..]; w->ended where that is the bottom. */
static bool return_to(walker *w, uint32_t stack, uint32_t from)
{
    for (uint32_t c = stack; c; c = w->stacks->cells[c].beside) {
        if (c == BOTTOM) {
            w->ended = true;
            break;
        }
        const stack_cell cell = w->stacks->cells[c];
        if (automaton_counts(w->a, cell.back)
                ? !count_one(w, cell, from)
                : !put_thread(w, &w->work, from, cell.back, cell.below))
            return false;
    }
    return true;
}

/* The stacks of a call. */
static uint32_t call_from(walker *w, uint32_t back, uint32_t stack)
{
    const gr_automaton *a = w->a;
    if (automaton_counts(a, back))
        stack = stacks_push(w->stacks, automaton_counter(a, back)->back, stack);
    else if (a->states[back].flags == GR_ACCEPTS)
        return stack; /* where a rule ends with a call there is nothing to come back for */
    return w->stacks->status ? NO_STACKS : stacks_push(w->stacks, back, stack);
}

/* Goes on with what is in w->work. */
static bool enter_all(walker *w, threads *out, uint32_t from)
{
    const gr_automaton *a = w->a;
    threads *work = &w->work;
    uint32_t turns = 0;
    /* First come, first looked at: what waits for its turn in one state is united there, so that
     * calls that meet again are followed once and not once for each way to them. */
    for (uint32_t i = 0; i < work->count; i++) {
        thread t = work->at[i];
        const gr_state *s = &a->states[t.state];
        if (s->flags & GR_READS && !put_thread(w, out, from, t.state, t.stacks)) return false;
        if (!(s->flags & GR_TURNS)) continue;
        if (s->flags & GR_ACCEPTS && !return_to(w, t.stacks, i + 1)) return false;
        for (uint32_t c = s->calls; c < s[1].calls; c++) {
            const uint32_t below = call_from(w, a->calls[c].back, t.stacks);
            if (w->stacks->status) {
                w->status = w->stacks->status;
                return false;
            }
            if (!put_thread(w, work, i + 1, a->calls[c].start, below)) return false;
        }
        if (++turns > MOST_TURNS) {
            w->status = RAD_E_LIMIT;
            return false;
        }
    }
    return true;
}

bool place_enter(walker *w, uint32_t state, uint32_t stack, threads *out, uint32_t from)
{
    w->work.count = 0;
    return put_thread(w, &w->work, 0, state, stack) && enter_all(w, out, from);
}

bool place_return(walker *w, uint32_t stack, threads *out, uint32_t from)
{
    w->work.count = 0;
    return return_to(w, stack, 0) && enter_all(w, out, from);
}

bool place_step(walker *w, threads *out, uint32_t first, uint32_t count, unsigned char byte)
{
    const gr_automaton *a = w->a;
    uint32_t from = out->count;
    w->ended = false;
    for (uint32_t i = first; i < first + count; i++) {
        thread t = out->at[i];
        uint32_t to = automaton_next(a, t.state, byte);
        if (to == NOWHERE) continue;
        if (a->states[to].flags == GR_READS) { /* as mostly */
            if (!put_thread(w, out, from, to, t.stacks)) return false;
        } else if (!place_enter(w, to, t.stacks, out, from)) {
            return false;
        }
    }
    return true;
}
