/* output_formats.c - which parser reads what this model says. */
#include "server/server_priv.h"

static bool is_auto(const char *name)
{
    return !name || strcmp(name, "auto") == 0;
}

static rad_status choose_calls(server *s, const char *name, rad_error *err)
{
    char names[400];
    const chat_template *chat = engine_chat_template(s->engine);
    gguf_str text = chat_template_source(chat, true);
    if (is_auto(name))
        s->output.calls = tool_format_detect(text.data, text.len);
    else if (strcmp(name, "none") != 0 && !(s->output.calls = tool_format_find(name)))
        return rad_fail(err, RAD_E_INVAL, "tool_call_parser '%.40s' is none of auto, none, %s",
                        name, tool_format_names(names, sizeof names));
    if (is_auto(name) && !s->output.calls && chat && chat_template_reads(chat, "tools"))
        rad_log(
            &s->env, RAD_LOG_WARN,
            "chat: the template reads tools, but how this model writes calls is not known: they "
            "come back as text; --tool-call-parser names a way");
    return RAD_OK;
}

static rad_status choose_reasoning(server *s, const char *name, rad_error *err)
{
    char names[400];
    gguf_str text = chat_template_source(engine_chat_template(s->engine), false);
    if (is_auto(name))
        s->output.reasoning = reasoning_format_detect(text.data, text.len);
    else if (strcmp(name, "none") != 0 && !(s->output.reasoning = reasoning_format_find(name)))
        return rad_fail(err, RAD_E_INVAL, "reasoning_parser '%.40s' is none of auto, none, %s",
                        name, reasoning_format_names(names, sizeof names));
    return RAD_OK;
}

rad_status output_formats_choose(server *s, rad_error *err)
{
    output_formats *o = &s->output;
    const tokenizer *tok = engine_tokenizer(s->engine);
    rad_status status = choose_calls(s, s->params.tool_call_parser, err);
    if (!status) status = choose_reasoning(s, s->params.reasoning_parser, err);
    if (status || !tok) return status;
    uint32_t all = tool_call_marker_ids(tok, o->calls, o->reasoning, o->ids, TOOL_CALL_MOST_IDS);
    uint32_t some =
        tool_call_marker_ids(tok, NULL, o->reasoning, o->reasoning_ids, TOOL_CALL_MOST_IDS);
    o->num_ids = RAD_MIN(all, (uint32_t)TOOL_CALL_MOST_IDS);
    o->num_reasoning_ids = RAD_MIN(some, (uint32_t)TOOL_CALL_MOST_IDS);
    return RAD_OK;
}
