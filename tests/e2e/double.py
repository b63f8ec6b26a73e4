"""The program over a model that says what a script tells it to (tests/double/double.c).

    with Double([{"when": "weather", "say": "<tool_call>...</tool_call>"}], template=CHATML) as d:
        d.ask("/v1/chat/completions", {...})        all of radish_e2e.Server

Its vocabulary is bytes and the markers of all families, so that any family's template and answers can be
played.
"""
import json
import pathlib
import tempfile

import tiny_gguf
from radish_e2e import RADISH, Server
from tiny_gguf import ARR, I32, STR, U32, byte_letters

DOUBLE = str(pathlib.Path(RADISH).parent / "tests/radish_double")

MARKERS = """<|endoftext|> <|im_start|> <|im_end|> <|eot_id|> <|eom_id|> <|start_header_id|>
<|end_header_id|> <|python_tag|> <|python_start|> <|python_end|> <|header_start|> <|header_end|> <|eot|>
[TOOL_CALLS] [CALL_ID] [ARGS] [THINK] [/THINK] [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS]
[TOOL_RESULTS] [/TOOL_RESULTS] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] <s> </s>
<|tool_call_start|> <|tool_call_end|> <|tool_list_start|> <|tool_list_end|> <|tool_response_start|>
<|tool_response_end|>
<|start|> <|end|> <|message|> <|channel|> <|constrain|> <|return|> <|call|>
<|tool_call> <tool_call|> <|"|> <|turn> <turn|> <|channel> <channel|>
<start_of_turn> <end_of_turn> <start_function_call> <end_function_call> <escape>
<|tool_call|> <|start_of_role|> <|end_of_role|> <|end_of_text|>
<｜tool▁calls▁begin｜> <｜tool▁calls▁end｜> <｜tool▁call▁begin｜> <｜tool▁call▁end｜> <｜tool▁sep｜>
<｜tool▁outputs▁begin｜> <｜tool▁outputs▁end｜> <｜tool▁output▁begin｜> <｜tool▁output▁end｜>
<｜User｜> <｜Assistant｜> <｜begin▁of▁sentence｜> <｜end▁of▁sentence｜>
<|tool_calls_section_begin|> <|tool_calls_section_end|> <|tool_call_begin|> <|tool_call_end|>
<|tool_call_argument_begin|>
｜DSML｜ <minimax:tool_call> </minimax:tool_call> <tool_sep:opensource>
<|START_ACTION|> <|END_ACTION|> <|START_THINKING|> <|END_THINKING|> <|START_RESPONSE|> <|END_RESPONSE|>
<|tools_prefix|> <|tools_suffix|> <|inner_prefix|> <|inner_suffix|>""".split()
# As their files have them: tokens, but not control tokens.
WORDS = "<tool_call> </tool_call> <think> </think> <tool_response> </tool_response>".split()

CHATML = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def write_model(path, template=CHATML, eos="<|im_end|>", context=32768, more=()):
    """A small model file with that template; what its weights are nobody looks at."""
    tokens = byte_letters() + [m for m in MARKERS if m != "</s>"] + WORDS + ["</s>", *more]
    kinds = [1] * 256 + [3] * (len(MARKERS) - 1) + [4] * len(WORDS) + [3] * (1 + len(more))
    vocabulary = [
        ("tokenizer.ggml.model", STR, "gpt2"), ("tokenizer.ggml.pre", STR, "gpt-2"),
        ("tokenizer.ggml.tokens", ARR, (STR, tokens)),
        ("tokenizer.ggml.token_type", ARR, (I32, kinds)),
        ("tokenizer.ggml.merges", ARR, (STR, [])),
        ("tokenizer.ggml.eos_token_id", U32, tokens.index(eos))]
    if template is not None:
        vocabulary.append(("tokenizer.chat_template", STR, template))
    tiny_gguf.write(path, dict(arch="llama", layers=1, dim=32, ffn=32, heads=1, kv=1, hd=32,
                               rope_dim=32, tied=True, vocab=len(tokens), context=context,
                               vocabulary=vocabulary))


class Double(Server):
    def __init__(self, script, *args, template=CHATML, eos="<|im_end|>", context=32768, more=()):
        self.dir = tempfile.TemporaryDirectory(prefix="radish-double-")
        model, rules = (pathlib.Path(self.dir.name) / name for name in ("m.gguf", "script.json"))
        write_model(model, template, eos, context, more)
        rules.write_text(json.dumps(script))
        super().__init__(model, "--max-total-tokens", 4 * context, *args,
                         env={"RADISH_SCRIPT": str(rules)})
        self.args[0] = DOUBLE

    def __exit__(self, *error):
        try:
            super().__exit__(*error)
        finally:
            self.dir.cleanup()

    def chat(self, messages, want=200, **fields):
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return self.ask("/v1/chat/completions", {"messages": messages, **fields}, want)
