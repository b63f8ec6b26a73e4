/* markers.h - the names of the tokens that models mark turns and ends with.
 *
 * Private to this room. */
#ifndef TEXT_MARKERS_H
#define TEXT_MARKERS_H

#include "base/base.h"

typedef struct marker {
    const char *name;
    /* A control token whatever type the file gives it: else a user could write one. */
    bool control;
    bool ends;             /* ends an answer, where it is a control token */
    const char *not_if[2]; /* but not in a vocabulary with one of these control tokens */
} marker;

/* The marker of this name, or NULL. */
const marker *marker_find(const char *name, size_t len);

/* All of them, in no order; *count says how many. */
const marker *marker_table(size_t *count);

#endif
