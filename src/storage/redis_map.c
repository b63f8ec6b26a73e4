/* redis_map.c - slots, nodes and their rests; see redis_map.h. */
#include "storage/redis_map.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/mix64.h"

uint16_t redis_slot(const char *name, size_t len)
{
    uint16_t crc = 0;
    for (size_t i = 0; i < len; i++) {
        crc ^= (uint16_t)((uint8_t)name[i] << 8);
        for (int bit = 0; bit < 8; bit++)
            crc = (uint16_t)(crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1);
    }
    return crc % REDIS_SLOTS;
}

/* A place for one more node. Nodes come and go with their addresses where a scheduler of
 * containers moves them, so a table that only grew would be full one day. The one that was put
 * there longest ago goes, so that those that a map of slots has just named stay. */
static uint16_t take_place(redis_map *m)
{
    bool used[REDIS_NODES] = {false};
    uint16_t place = REDIS_NOWHERE;
    if (m->num_nodes < REDIS_NODES) return (uint16_t)m->num_nodes++;
    for (int i = 0; i < REDIS_SLOTS; i++)
        if (m->slots[i] != REDIS_NOWHERE) used[m->slots[i]] = true;
    for (uint16_t i = (uint16_t)m->num_seeds; i < REDIS_NODES; i++)
        if (!used[i] && (place == REDIS_NOWHERE || m->nodes[i].number < m->nodes[place].number))
            place = i;
    return place;
}

static uint16_t find_node(const redis_map *m, const char *host, size_t len, int64_t port)
{
    for (uint16_t i = 0; i < m->num_nodes; i++)
        if (m->nodes[i].port == port && strlen(m->nodes[i].host) == len &&
            !memcmp(m->nodes[i].host, host, len))
            return i;
    return REDIS_NOWHERE;
}

uint16_t redis_map_node(redis_map *m, const char *host, size_t len, int64_t port)
{
    if (!len || len > REDIS_HOST || port < 1 || port > 65535) return REDIS_NOWHERE;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)host[i]) && !strchr(".:-_%", host[i])) return REDIS_NOWHERE;
    uint16_t known = find_node(m, host, len, port);
    if (known != REDIS_NOWHERE) return known;
    char name[REDIS_HOST + 2] = {0};
    memcpy(name, host, len); /* it may be that of the node that goes */
    uint16_t place = take_place(m);
    if (place == REDIS_NOWHERE) return REDIS_NOWHERE;
    redis_node *n = &m->nodes[place];
    *n = (redis_node){.port = (uint16_t)port, .number = ++m->last_number};
    memcpy(n->host, name, len);
    return place;
}

/* Where a node is. */
typedef struct address {
    const char *host;
    size_t len;
    int64_t port;
} address;

/* "host:port", "[v6]:port", "v6:port" as Redis writes it, or "host"; false: the port is none. */
static bool read_address(const char *text, size_t len, address *out)
{
    size_t host_len = len;
    int64_t port = 6379;
    while (host_len && text[host_len - 1] != ':' && text[host_len - 1] != ']')
        host_len--;
    if (host_len && text[host_len - 1] == ':') {
        port = 0;
        for (size_t i = host_len; i < len; i++) {
            if (!isdigit((unsigned char)text[i]) || port > 65535) return false;
            port = port * 10 + (text[i] - '0');
        }
        host_len--;
    } else if (!host_len)
        host_len = len;
    if (host_len >= 2 && text[0] == '[' && text[host_len - 1] == ']') {
        text++;
        host_len -= 2;
    }
    *out = (address){text, host_len, port};
    return true;
}

/* In ",HOST,HOST" */
static bool is_allowed(const redis_map *m, const char *host, size_t len)
{
    for (const char *at = m->allowed; *at; at += 1 + strcspn(at + 1, ","))
        if (strcspn(at + 1, ",") == len && strncasecmp(at + 1, host, len) == 0) return true;
    return false;
}

bool redis_map_may_name(const redis_map *m, const char *host, size_t len)
{
    if (!m->allowed[0] || is_allowed(m, host, len)) return true;
    for (uint32_t i = 0; i < m->num_seeds; i++)
        if (strlen(m->nodes[i].host) == len && strncasecmp(m->nodes[i].host, host, len) == 0)
            return true;
    return false;
}

rad_status redis_map_allow(redis_map *m, const char *hosts, rad_error *err)
{
    m->allowed[0] = 0;
    if (!hosts) return RAD_OK;
    if (strlen(hosts) + 2 > sizeof m->allowed)
        return rad_fail(err, RAD_E_INVAL, "storage_redis: allowed_hosts is too long");
    for (const char *c = hosts; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr(".:-_%,", *c))
            return rad_fail(err, RAD_E_INVAL,
                            "storage_redis: allowed_hosts is HOST,HOST,..., not "
                            "'%.100s'",
                            hosts);
    snprintf(m->allowed, sizeof m->allowed, ",%s", hosts);
    return RAD_OK;
}

void redis_map_forget_names(redis_map *m)
{
    for (uint32_t i = m->num_seeds; i < m->num_nodes; i++)
        m->nodes[i].is_named = 0;
}

rad_status redis_map_seeds(redis_map *m, const char *nodes, rad_error *err)
{
    *m = (redis_map){0};
    memset(m->slots, 0xff, sizeof m->slots);
    while (nodes && *nodes) {
        size_t len = strcspn(nodes, ",");
        address a;
        uint16_t node = read_address(nodes, len, &a) ? redis_map_node(m, a.host, a.len, a.port)
                                                     : REDIS_NOWHERE;
        if (node != REDIS_NOWHERE)
            m->nodes[node].is_named = 1;
        else
            return rad_fail(err, RAD_E_INVAL, "storage_redis: '%.*s' is no HOST:PORT",
                            (int)RAD_MIN(len, 100u), nodes);
        nodes += len + (nodes[len] == ',');
    }
    m->num_seeds = m->num_nodes;
    return m->num_seeds ? RAD_OK
                        : rad_fail(err, RAD_E_INVAL, "storage_redis: which nodes? HOST:PORT,...");
}

bool redis_map_redirect(redis_map *m, const char *text, uint16_t from, uint16_t *slot,
                        uint16_t *node)
{
    char *end;
    while (isalpha((unsigned char)*text))
        text++;
    long number = strtol(text, &end, 10);
    if (end == text || *end != ' ' || number < 0 || number >= REDIS_SLOTS) return false;
    *slot = (uint16_t)number;
    *node = REDIS_NOWHERE;
    address a;
    if (!read_address(end + 1, strlen(end + 1), &a)) return false;
    if (!a.len && from < m->num_nodes)
        a = (address){m->nodes[from].host, strlen(m->nodes[from].host), a.port};
    if (is_allowed(m, a.host, a.len)) {
        *node = redis_map_node(m, a.host, a.len, a.port);
        return *node != REDIS_NOWHERE;
    }
    uint16_t known = find_node(m, a.host, a.len, a.port);
    if (known != REDIS_NOWHERE && m->nodes[known].is_named) *node = known;
    return true;
}

bool redis_map_may_try(redis_map *m, uint16_t node, uint64_t now_ns, uint64_t probe_ns)
{
    redis_node *n = &m->nodes[node];
    if (!n->fails) return true;
    if (now_ns < n->try_after_ns) return false;
    n->try_after_ns = now_ns + probe_ns;
    return true;
}

void redis_map_failed(redis_map *m, uint16_t node, uint64_t now_ns, uint64_t most_ns)
{
    redis_node *n = &m->nodes[node];
    uint64_t rest = 100000000ull << RAD_MIN(n->fails, 20u);
    rest = RAD_MIN(rest, most_ns);
    m->random = mix64(m->random ^ now_ns ^ node);
    rest = rest - rest / 4 + m->random % (rest / 2 + 1); /* so that not all come back at once */
    n->fails++;
    n->try_after_ns = now_ns + rest;
}

void redis_map_worked(redis_map *m, uint16_t node)
{
    m->nodes[node].fails = 0;
}

bool redis_map_is_down(const redis_map *m)
{
    bool used[REDIS_NODES] = {false}, any = false;
    for (int i = 0; i < REDIS_SLOTS; i++)
        if (m->slots[i] != REDIS_NOWHERE) used[m->slots[i]] = any = true;
    for (uint32_t i = 0; i < m->num_nodes; i++)
        if ((used[i] || !any) && !m->nodes[i].fails) return false;
    return true;
}
