/* clients.h - what one client may have of the server, so that none has all of it.
 *
 * A client is who has an API key; where keys are not wanted, an address (of IPv6 the network, its
 * first 64 bits: who has one of its addresses has all). There is a record for each that is there or
 * was a short while ago, in a table that is as large as it is from the start: the record that was
 * left alone longest makes room. A record counts
 *
 *     connections         that are open                                          the server's
 * thread queued              prompts that wait for their first token                      any
 * thread tokens of a minute  a bucket that holds so many and fills within a minute  the server's
 * thread
 *
 * A request begins while there is anything in the bucket, and goes on to its end; what it takes
 * beyond that is missing later. So a prompt longer than a minute's tokens is answered, and then
 * nothing until they are made up for.
 *
 * NULL is a client without limits, everywhere. */
#ifndef SERVER_CLIENTS_H
#define SERVER_CLIENTS_H

#include <radish/env.h>
#include <radish/status.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct clients clients;
typedef struct client client;

typedef struct client_limits { /* 0: none */
    uint32_t connections;
    uint32_t queued;
    uint64_t tokens_per_minute;
} client_limits;

/* `most` records. `env` must come from rad_env_or_default. */
rad_status clients_create(const rad_env *env, const client_limits *limits, uint32_t most,
                          clients **out);
void clients_destroy(clients *all); /* NULL is fine */

/* Whose key that is, or who is at the other end of the socket; held until client_let_go. NULL: all
 * records belong to clients that are there. */
client *clients_by_key(clients *all, const char *owner);
client *clients_by_fd(clients *all, int fd);
client *client_hold(client *c); /* once more */
void client_let_go(client *c);

/* Its connections: one more, one less, and whether there are too many. */
void client_connect(client *c);
void client_disconnect(client *c);
bool client_is_crowded(const client *c);

/* Prompts that wait. False: so many more are too many, and none was counted. */
bool client_queue(client *c, uint32_t prompts);
void client_unqueue(client *c, uint32_t prompts);

/* In how many seconds a request may begin; 0: now. And what it took (less than 0: gave back). */
uint32_t client_wait_s(client *c, uint64_t now_ns);
void client_spend(client *c, int64_t tokens, uint64_t now_ns);

const client_limits *client_limits_of(const client *c); /* not of NULL */

#endif
