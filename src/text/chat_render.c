/* chat_render.c - the variables of a chat template.
 *
 * What is not there is none, as in Hugging Face's function: `tools is defined` holds for every
 * conversation. A special token that the vocabulary has not is "". */
#include "text/chat_render.h"

#include <time.h>

enum { MOST_KWARGS = 64, FIXED = 6 };

int64_t chat_render_now(void)
{
    time_t now = time(NULL);
    struct tm local;
    return (int64_t)now + (localtime_r(&now, &local) ? local.tm_gmtoff : 0);
}

static void set(jinja_var *v, const char *name, const json_t *value, bool user)
{
    *v = (jinja_var){.name = name, .value = value, .user = user};
}

rad_status chat_render(const jinja_template *t, const chat_input *input, jinja_text *out,
                       jinja_fault *fault, rad_error *err)
{
    jinja_var vars[FIXED + MOST_KWARGS];
    jinja_input in = {.vars = vars, .num_vars = FIXED, .now_unix = input->now_unix};
    *out = (jinja_text){0};
    if (fault) *fault = (jinja_fault){0};
    if (json_object_size(input->kwargs) > MOST_KWARGS)
        return rad_fail(err, RAD_E_LIMIT, "chat template: more than %d variables", MOST_KWARGS);
    json_t *bos = json_string(input->bos_token ? input->bos_token : "");
    json_t *eos = json_string(input->eos_token ? input->eos_token : "");
    json_t *empty = json_array();
    rad_status status = RAD_E_NOMEM;
    set(&vars[0], "messages", input->messages ? input->messages : empty, true);
    set(&vars[1], "tools", input->tools, true);
    set(&vars[2], "documents", NULL, true);
    set(&vars[3], "add_generation_prompt",
        input->add_generation_prompt ? json_true() : json_false(), false);
    set(&vars[4], "bos_token", bos, false);
    set(&vars[5], "eos_token", eos, false);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)input->kwargs, key, value)
        set(&vars[in.num_vars++], key, value, !input->trust_kwargs);
    if (bos && eos && empty)
        status = jinja_render(t, &in, out, fault, err);
    else
        rad_fail(err, status, "chat template: no memory");
    json_decref(bos);
    json_decref(eos);
    json_decref(empty);
    return status;
}
