/* cache_literals.h - keys and slots written out where they are used:
 *
 *     insert(cache, KEY(1, 2, 3), SLOTS(10, 20, 30)); */
#ifndef TESTS_CACHE_LITERALS_H
#define TESTS_CACHE_LITERALS_H

#include <radish/cache.h>

#define KEY(...)                                                                                   \
    (&(rad_key){.tokens = (rad_token[]){__VA_ARGS__},                                              \
                .num_tokens = sizeof((rad_token[]){__VA_ARGS__}) / sizeof(rad_token)})
#define SLOTS(...) ((rad_slot[]){__VA_ARGS__})

#endif
