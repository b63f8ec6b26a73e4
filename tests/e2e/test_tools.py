"""Chat over a model that is played back: what it says comes back, and no page of its context is another's."""
from double import Double
from radish_e2e import check, run


def test_the_double_says_what_its_script_says():
    script = [{"when": ["weather", "Paris"], "say": "It is <|im_start|>sunny \u00e9."},
              {"when": "weather", "unless": "Rome", "say": "Where?", "end": "<|eot_id|>"},
              {"when": "for ever", "say": "e", "end": None}]
    with Double(script, "--page-size", 4) as d:
        def text(*words, **fields):
            return d.chat(" ".join(words), **fields)["choices"][0]["message"]["content"]
        check(text("weather in Paris") == "It is sunny \u00e9.")
        check(text("weather in Paris", skip_special_tokens=False) == "It is <|im_start|>sunny \u00e9.")
        check(text("weather") == "Where?")
        check(text("weather in Rome") == "no rule")
        check(text("for ever", max_tokens=4) == "exxx")
        again = d.chat("weather in Paris, now at night")
        check(again["usage"]["prompt_tokens_details"]["cached_tokens"] > 20, again)
        d.wait_idle()


if __name__ == "__main__":
    run(globals())
