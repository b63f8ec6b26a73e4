/* file_table.c - the sum of an index's entries; see file_table.h.
 *
 * Pages lie in one array and are named by their place in it, so that the hash, the list of
 * use and the slots are arrays of 4 bytes. 64 + 8 + 4 bytes a page, twice that while an
 * array grows. */
#include "storage/file_table.h"

#include "base/mix64.h"

void file_table_init(file_table *t, const rad_env *env)
{
    *t = (file_table){.env = env, .oldest = FILE_NONE, .newest = FILE_NONE, .free_page = FILE_NONE};
}

void file_table_reset(file_table *t)
{
    rad_free(t->env, t->pages, t->cap_pages * sizeof *t->pages);
    if (t->hash) rad_free(t->env, t->hash, ((size_t)t->hash_mask + 1) * sizeof *t->hash);
    for (int i = 0; i < FILE_CLASSES; i++)
        rad_free(t->env, t->classes[i].slots, t->classes[i].cap_slots * sizeof(uint32_t));
    file_table old = *t;
    file_table_init(t, old.env);
    t->records = old.records;
    t->user = old.user;
}

uint64_t file_stride(uint64_t record_bytes)
{
    uint64_t unit = record_bytes >= 32768 ? 4096 : 64; /* whole blocks where it costs little */
    return (record_bytes + unit - 1) / unit * unit;
}

static uint32_t home(const file_table *t, const rad_storage_key *key)
{
    uint64_t first;
    memcpy(&first, key->bytes, sizeof first);
    return (uint32_t)mix64(first) & t->hash_mask;
}

static uint32_t *find_place(const file_table *t, const rad_storage_key *key)
{
    uint32_t at = home(t, key);
    while (t->hash[at] && memcmp(&t->pages[t->hash[at] - 1].key, key, sizeof *key) != 0)
        at = (at + 1) & t->hash_mask;
    return &t->hash[at];
}

uint32_t file_table_find(const file_table *t, const rad_storage_key *key)
{
    return t->hash ? *find_place(t, key) - 1 : FILE_NONE; /* 0 - 1 is FILE_NONE */
}

uint32_t file_table_class(const file_table *t, uint64_t record_bytes)
{
    for (uint32_t i = 0; i < FILE_CLASSES; i++)
        if (record_bytes && t->classes[i].record_bytes == record_bytes) return i;
    return FILE_NONE;
}

uint32_t file_table_free_slot(file_table *t, uint32_t class_)
{
    file_class *c = &t->classes[class_];
    while (c->first_free < c->num_slots && c->slots[c->first_free] != FILE_SLOT_FREE)
        c->first_free++;
    return c->first_free;
}

static bool grow_pages(file_table *t)
{
    uint32_t cap = t->cap_pages ? t->cap_pages * 2 : 256, mask = cap * 2 - 1;
    file_page *pages = rad_alloc(t->env, rad_mul(cap, sizeof *pages));
    uint32_t *hash = rad_alloc(t->env, rad_mul((size_t)mask + 1, sizeof *hash));
    if (!pages || !hash || cap > 1u << 29) {
        rad_free(t->env, pages, cap * sizeof *pages);
        rad_free(t->env, hash, ((size_t)mask + 1) * sizeof *hash);
        return false;
    }
    uint32_t *old_hash = t->hash;
    size_t old_bytes = ((size_t)t->hash_mask + 1) * sizeof *hash;
    file_page *old_pages = t->pages;
    if (old_pages) memcpy(pages, old_pages, t->cap_pages * sizeof *pages);
    t->pages = pages;
    t->hash = hash;
    t->hash_mask = mask;
    if (old_hash) {
        for (size_t i = 0; i < old_bytes / sizeof *hash; i++)
            if (old_hash[i]) *find_place(t, &pages[old_hash[i] - 1].key) = old_hash[i];
        rad_free(t->env, old_hash, old_bytes);
        rad_free(t->env, old_pages, t->cap_pages * sizeof *pages);
    }
    t->cap_pages = cap;
    return true;
}

static bool grow_slots(file_table *t, file_class *c, uint32_t num_slots)
{
    if (num_slots > c->cap_slots) {
        uint32_t cap = RAD_MAX(num_slots, c->cap_slots ? c->cap_slots * 2 : 256);
        uint32_t *slots = rad_alloc(t->env, rad_mul(cap, sizeof *slots));
        if (!slots) return false;
        if (c->slots) memcpy(slots, c->slots, c->num_slots * sizeof *slots);
        rad_free(t->env, c->slots, c->cap_slots * sizeof *slots);
        c->slots = slots;
        c->cap_slots = cap;
    }
    while (c->num_slots < num_slots)
        c->slots[c->num_slots++] = FILE_SLOT_FREE;
    return true;
}

static void list_remove(file_table *t, uint32_t page)
{
    file_page *p = &t->pages[page];
    *(p->older == FILE_NONE ? &t->oldest : &t->pages[p->older].newer) = p->newer;
    *(p->newer == FILE_NONE ? &t->newest : &t->pages[p->newer].older) = p->older;
}

static void list_append(file_table *t, uint32_t page)
{
    file_page *p = &t->pages[page];
    p->older = t->newest;
    p->newer = FILE_NONE;
    *(t->newest == FILE_NONE ? &t->oldest : &t->pages[t->newest].newer) = page;
    t->newest = page;
}

static void free_slot(file_table *t, uint32_t class_, uint32_t slot)
{
    file_class *c = &t->classes[class_];
    c->slots[slot] = FILE_SLOT_FREE;
    c->first_free = RAD_MIN(c->first_free, slot);
    t->bytes -= c->stride;
}

/* The place in the hash becomes empty; what was pushed past it moves up. */
static void hash_remove(file_table *t, uint32_t *place)
{
    uint32_t hole = (uint32_t)(place - t->hash), at = hole;
    for (;;) {
        at = (at + 1) & t->hash_mask;
        if (!t->hash[at]) break;
        uint32_t want = home(t, &t->pages[t->hash[at] - 1].key);
        if (((at - want) & t->hash_mask) < ((at - hole) & t->hash_mask)) continue;
        t->hash[hole] = t->hash[at];
        hole = at;
    }
    t->hash[hole] = 0;
}

static void drop_page(file_table *t, uint32_t page)
{
    file_page *p = &t->pages[page];
    list_remove(t, page);
    hash_remove(t, find_place(t, &p->key));
    free_slot(t, p->class_, p->slot);
    t->classes[p->class_].num_pages--;
    p->newer = t->free_page;
    p->class_ = UINT16_MAX;
    t->free_page = page;
    t->num_pages--;
}

static void empty_slot(file_table *t, uint32_t class_, uint32_t slot)
{
    uint32_t holds = t->classes[class_].slots[slot];
    if (holds == FILE_SLOT_FREE) return;
    if (holds >= FILE_SLOT_TAKEN) {
        t->num_taken--;
        free_slot(t, class_, slot);
    } else
        drop_page(t, holds);
}

static rad_status put(file_table *t, const file_entry *e)
{
    file_class *c = &t->classes[e->class_];
    if (t->free_page == FILE_NONE && t->used_pages == t->cap_pages && !grow_pages(t))
        return RAD_E_NOMEM;
    empty_slot(t, e->class_, e->slot);
    uint32_t old = file_table_find(t, &e->key);
    if (old != FILE_NONE) drop_page(t, old);
    uint32_t page = t->free_page;
    if (page == FILE_NONE)
        page = t->used_pages++;
    else
        t->free_page = t->pages[page].newer;
    t->pages[page] = (file_page){.key = e->key,
                                 .seq = e->seq,
                                 .slot = e->slot,
                                 .class_ = e->class_,
                                 .made = e->made,
                                 .used = e->used};
    *find_place(t, &e->key) = page + 1;
    list_append(t, page);
    c->slots[e->slot] = page;
    c->num_pages++;
    t->num_pages++;
    t->bytes += c->stride;
    return RAD_OK;
}

/* How many of `wanted` records the class's data file has room for; it is looked at only when it had
 * too little. */
static uint64_t file_room(file_table *t, file_class *c, uint64_t record_bytes, uint64_t wanted)
{
    if (!t->records) return wanted;
    if (c->records < wanted) c->records = t->records(t->user, record_bytes);
    return RAD_MIN(c->records, wanted);
}

rad_status file_table_apply(file_table *t, const file_entry *e)
{
    bool of_slot = e->op == FILE_TAKE || e->op == FILE_RELEASE || e->op == FILE_PUT;
    if (of_slot || e->op == FILE_CLASS) {
        if (e->class_ >= FILE_CLASSES || e->slot >= FILE_MAX_SLOTS) return RAD_E_FORMAT;
        file_class *c = &t->classes[e->class_];
        if (e->op == FILE_CLASS) {
            uint64_t bytes = e->record_bytes;
            if (bytes < RAD_STORAGE_HEADER_BYTES || bytes > 1ull << 40) return RAD_E_FORMAT;
            if (c->record_bytes && c->record_bytes != bytes) return RAD_E_FORMAT;
            if (!grow_slots(t, c, (uint32_t)file_room(t, c, bytes, e->slot))) return RAD_E_NOMEM;
            c->record_bytes = bytes;
            c->stride = file_stride(bytes);
        } else {
            if (!c->record_bytes) return RAD_E_FORMAT;
            uint64_t ahead = e->op == FILE_PUT ? 0 : FILE_AHEAD, wanted = e->slot + 1ull;
            uint64_t inside = wanted - RAD_MIN(ahead, wanted);
            if (file_room(t, c, c->record_bytes, inside) < inside) return RAD_E_FORMAT;
            if (!grow_slots(t, c, e->slot + 1)) return RAD_E_NOMEM;
        }
    }
    t->max_seq = RAD_MAX(t->max_seq, e->seq);
    uint32_t page = FILE_NONE;
    if (e->op == FILE_DROP || e->op == FILE_TOUCH) page = file_table_find(t, &e->key);
    switch (e->op) {
    case FILE_CLASS: return RAD_OK;
    case FILE_TAKE:
        empty_slot(t, e->class_, e->slot);
        t->classes[e->class_].slots[e->slot] = FILE_SLOT_TAKEN + e->owner;
        t->bytes += t->classes[e->class_].stride;
        t->num_taken++;
        return RAD_OK;
    case FILE_RELEASE:
        if (t->classes[e->class_].slots[e->slot] == FILE_SLOT_TAKEN + e->owner)
            empty_slot(t, e->class_, e->slot);
        return RAD_OK;
    case FILE_PUT: return put(t, e);
    case FILE_DROP:
        if (page != FILE_NONE) drop_page(t, page);
        return RAD_OK;
    case FILE_TOUCH:
        if (page == FILE_NONE) return RAD_OK;
        t->pages[page].used = RAD_MAX(t->pages[page].used, e->used);
        list_remove(t, page);
        list_append(t, page);
        return RAD_OK;
    case FILE_CLEAR:
        while (t->oldest != FILE_NONE)
            drop_page(t, t->oldest);
        return RAD_OK;
    default: return RAD_E_FORMAT;
    }
}

rad_status file_table_check(const file_table *t, rad_error *err)
{
    uint32_t listed = 0, hashed = 0, slotted = 0, taken = 0;
    uint64_t bytes = 0;
    for (uint32_t p = t->oldest, before = FILE_NONE; p != FILE_NONE; p = t->pages[p].newer) {
        const file_page *page = &t->pages[p];
        if (page->older != before || ++listed > t->num_pages)
            return rad_fail(err, RAD_E_CORRUPT, "file_table: the list of use is broken at %u", p);
        if (file_table_find(t, &page->key) != p)
            return rad_fail(err, RAD_E_CORRUPT, "file_table: page %u is not found", p);
        if (page->class_ >= FILE_CLASSES || page->slot >= t->classes[page->class_].num_slots ||
            t->classes[page->class_].slots[page->slot] != p)
            return rad_fail(err, RAD_E_CORRUPT, "file_table: page %u has no slot", p);
        before = p;
    }
    for (size_t i = 0; t->hash && i <= t->hash_mask; i++)
        hashed += t->hash[i] != 0;
    for (int i = 0; i < FILE_CLASSES; i++)
        for (uint32_t s = 0; s < t->classes[i].num_slots; s++) {
            uint32_t holds = t->classes[i].slots[s];
            if (holds == FILE_SLOT_FREE) {
                if (s < t->classes[i].first_free)
                    return rad_fail(err, RAD_E_CORRUPT, "file_table: slot %u is forgotten", s);
                continue;
            }
            bytes += t->classes[i].stride;
            *(holds >= FILE_SLOT_TAKEN ? &taken : &slotted) += 1;
        }
    if (listed != t->num_pages || hashed != listed || slotted != listed || taken != t->num_taken ||
        bytes != t->bytes)
        return rad_fail(err, RAD_E_CORRUPT,
                        "file_table: %u pages, %u listed, %u hashed, %u in slots, %u of %u taken",
                        t->num_pages, listed, hashed, slotted, taken, t->num_taken);
    return RAD_OK;
}
