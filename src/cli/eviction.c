/* eviction.c - the options that choose an eviction policy, checked before anything loads. */
#include "base/word_list.h"
#include "cli/cli.h"

#include <jansson.h>

typedef struct config_key {
    const char *name;
    uint32_t policy;
    uint32_t *target;
} config_key;

static int set(const char *command, const config_key *key, const char *policy, const json_t *value)
{
    json_int_t n = json_integer_value(value);
    if (!json_is_integer(value) || n < 1 || n > 1000000000)
        return cli_usage(command,
                         "--radix-eviction-policy-config: '%s' wants a whole number from 1 to "
                         "1000000000",
                         key->name);
    if (strcmp(rad_eviction_policy_name(key->policy), policy) != 0)
        return cli_usage(command,
                         "--radix-eviction-policy-config: '%s' is an option of %s, the policy is "
                         "%s",
                         key->name, rad_eviction_policy_name(key->policy), policy);
    *key->target = (uint32_t)n;
    return CLI_GO_ON;
}

static int read_config(const char *command, const char *policy, const char *config,
                       rad_eviction_options *out)
{
    const config_key keys[] = {
        {"protected_threshold", RAD_EVICT_SLRU, &out->protected_threshold},
        {"cost_half_life_percent", RAD_EVICT_COST, &out->cost_half_life_percent},
        {"cost_attention_tokens", RAD_EVICT_COST, &out->cost_attention_tokens},
    };
    json_error_t err;
    json_t *root = json_loads(config, JSON_REJECT_DUPLICATES, &err), *value;
    if (!json_is_object(root)) {
        json_decref(root);
        return cli_usage(command, "--radix-eviction-policy-config wants a JSON object such as "
                                  "'{\"protected_threshold\":4}'");
    }
    const char *name;
    int code = CLI_GO_ON;
    json_object_foreach(root, name, value)
    {
        const config_key *key = NULL;
        for (size_t i = 0; i < RAD_COUNT(keys); i++)
            if (strcmp(keys[i].name, name) == 0) key = &keys[i];
        if (code != CLI_GO_ON) break;
        code = key ? set(command, key, policy, value)
                   : cli_usage(command,
                               "--radix-eviction-policy-config: there is no key '%.60s'; there "
                               "are protected_threshold (slru), cost_half_life_percent and "
                               "cost_attention_tokens (cost)",
                               name);
    }
    json_decref(root);
    return code;
}

const char *cli_eviction_names(char *text, size_t size)
{
    for (uint32_t i = 0; i < RAD_EVICT_USER; i++) {
        char word[40];
        snprintf(word, sizeof word, "%s%s", rad_eviction_policy_name(i), i ? "" : " (default)");
        word_list_add(text, size, i, RAD_EVICT_USER, "or", word);
    }
    return text;
}

int cli_eviction(const char *command, const char *policy, const char *config,
                 rad_eviction_options *out)
{
    rad_error err = {0};
    *out = (rad_eviction_options){0};
    if (!policy) policy = "lru";
    if (rad_eviction_policy_parse(policy, &out->policy, &err) != RAD_OK)
        return cli_usage(command, "%s", err.text);
    if (out->policy == RAD_EVICT_USER)
        return cli_usage(command, "the policy 'user' is a function; it can be set through the "
                                  "library only");
    return config ? read_config(command, policy, config, out) : CLI_GO_ON;
}
