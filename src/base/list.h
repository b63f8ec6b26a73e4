/* list.h - lists whose links lie in what they hold, so that adding cannot fail and taking out needs
 * no search.
 *
 *     struct job { struct job *prev, *next; ... };
 *     struct { struct job *first, *last; } waiting = {0};
 *
 *     LIST_APPEND(&waiting, j, prev, next);
 *     for (struct job *j = waiting.first; j; j = j->next) ...
 *     LIST_REMOVE(&waiting, j, prev, next);
 *
 * Zeroed is empty. What is not in a list has no business in LIST_REMOVE. Whoever owns the list
 * guards it. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stddef.h>

#define LIST_APPEND(list, item, prev, next)                                                        \
    do {                                                                                           \
        (item)->next = NULL;                                                                       \
        (item)->prev = (list)->last;                                                               \
        *((item)->prev ? &(item)->prev->next : &(list)->first) = (item);                           \
        (list)->last = (item);                                                                     \
    } while (0)

#define LIST_REMOVE(list, item, prev, next)                                                        \
    do {                                                                                           \
        *((item)->prev ? &(item)->prev->next : &(list)->first) = (item)->next;                     \
        *((item)->next ? &(item)->next->prev : &(list)->last) = (item)->prev;                      \
        (item)->prev = (item)->next = NULL;                                                        \
    } while (0)

#endif
