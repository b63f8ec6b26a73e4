/* markers.c - one table of all families: a new family's markers are a row here.
 *
 * Files name one end token, or up to three (eos, eot, eom), and often not the one that turns end
 * with. So the tokens that are known by name count, too. Names that text may have as well (</s>
 * is HTML, and a token of Gemma's) count only where the file says that they are control tokens. */
#include "text/markers.h"

#define CONTROL .control = true
#define ENDS    .ends = true

static const marker markers[] = {
    /* ChatML: Qwen, SmolLM, LFM2, Granite's kin, and many more */
    {"<|im_start|>", CONTROL},
    {"<|im_end|>", CONTROL, ENDS},
    {"<|endoftext|>", CONTROL, ENDS},
    /* Llama 3 and 4; Granite */
    {"<|begin_of_text|>", CONTROL},
    {"<|end_of_text|>", CONTROL, ENDS},
    {"<|start_header_id|>", CONTROL},
    {"<|end_header_id|>", CONTROL},
    {"<|eot_id|>", CONTROL, ENDS},
    {"<|eom_id|>", CONTROL, ENDS},
    {"<|header_start|>", CONTROL},
    {"<|header_end|>", CONTROL},
    {"<|eot|>", CONTROL, ENDS},
    {"<|eom|>", CONTROL, ENDS},
    {"<|start_of_role|>", CONTROL},
    {"<|end_of_role|>", CONTROL},
    /* Phi; radish's own models; Hunyuan. In harmony and Solar Open <|end|> ends a message of an
     * answer that goes on. */
    {"<|end|>", CONTROL, ENDS, .not_if = {"<|return|>", "<|flush|>"}},
    {"<|bos|>", CONTROL},
    {"<|eos|>", CONTROL, ENDS},
    {"<|pad|>", CONTROL},
    {"<|system|>", CONTROL},
    {"<|user|>", CONTROL},
    {"<|assistant|>", CONTROL},
    /* harmony (gpt-oss), Solar Open */
    {"<|start|>", CONTROL},
    {"<|return|>", CONTROL, ENDS},
    {"<|call|>", CONTROL, ENDS},
    {"<|calls|>", CONTROL, ENDS},
    {"<|flush|>", CONTROL, ENDS},
    /* Gemma; Gemma 4 */
    {"<start_of_turn>", CONTROL},
    {"<end_of_turn>", CONTROL, ENDS},
    {"<eos>", ENDS},
    {"<|turn>", CONTROL},
    {"<turn|>", CONTROL, ENDS},
    {"<|tool_response>", CONTROL, ENDS},
    /* DeepSeek. Their bars are U+FF5C, their underscores U+2581. */
    {"<\uff5cbegin\u2581of\u2581sentence\uff5c>", CONTROL},
    {"<\uff5cend\u2581of\u2581sentence\uff5c>", CONTROL, ENDS},
    {"<\uff5cUser\uff5c>", CONTROL},
    {"<\uff5cAssistant\uff5c>", CONTROL},
    {"<|EOT|>", CONTROL, ENDS},
    /* Command R */
    {"<|START_OF_TURN_TOKEN|>", CONTROL},
    {"<|END_OF_TURN_TOKEN|>", CONTROL, ENDS},
    /* Kimi, MiniMax, GLM, EXAONE, Ling, Seed, SmolVLM, Llama 2 and Mistral */
    {"[EOT]", ENDS},
    {"[EOS]", ENDS},
    {"]~b]", CONTROL},
    {"[e~[", CONTROL, ENDS},
    {"<|observation|>", CONTROL},
    {"[|endofturn|]", CONTROL, ENDS},
    {"<|role_end|>", CONTROL, ENDS},
    {"<seed:eos>", CONTROL, ENDS},
    {"<end_of_utterance>", CONTROL, ENDS},
    {"<EOT>", ENDS},
    {"_<EOT>", ENDS},
    {"</s>", ENDS, .not_if = {"<|tool_response>"}},
};

const marker *marker_find(const char *name, size_t len)
{
    /* Of the words of a vocabulary hardly any begin and end like these. */
    if (len < 4 || !strchr("<[]_", name[0]) || !strchr(">][", name[len - 1])) return NULL;
    for (size_t i = 0; i < RAD_COUNT(markers); i++)
        if (strlen(markers[i].name) == len && memcmp(markers[i].name, name, len) == 0)
            return &markers[i];
    return NULL;
}

const marker *marker_table(size_t *count)
{
    *count = RAD_COUNT(markers);
    return markers;
}
