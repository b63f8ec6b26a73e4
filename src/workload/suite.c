/* suite.c - the sixteen workloads: who calls what after whom, and how long it is.
 *
 * Kinds of sharing: one prefix for all (few_shot, hellaswag), a chain that grows (react,
 * chat), a tree of calls (tree_of_thought), a template beside a chain (skeleton), branches
 * that read one article (llm_judge), popular documents (rag), samples of one question,
 * groups in shuffled order, and none. */
#include "workload/py_random.h"
#include "workload/workload.h"

enum { MOST_SEGS = 64, MOST_PROGRAMS = 512 };

/* Lengths are cut to whole tokens, as they are in the suite's definition. */
static uint32_t between(py_random *r, uint32_t n, double low, double high)
{
    return (uint32_t)(n * py_random_uniform(r, low, high));
}

static void few_shot(workload *w, uint32_t groups, uint32_t per, uint32_t shot, uint32_t q,
                     uint32_t out, py_random *r)
{
    for (uint32_t g = 0; g < groups; g++) {
        uint32_t prompt[2];
        prompt[0] = workload_add_segment(w, groups > 1 ? between(r, shot, 0.75, 1.25) : shot);
        for (uint32_t i = 0; i < per; i++) {
            prompt[1] = workload_add_segment(w, between(r, q, 0.5, 1.5));
            workload_add_call(w, g * per + i, prompt, 2, out, NULL, 0);
        }
    }
}

/* A question is scored alone, then with each of four choices. */
static void hellaswag(workload *w, uint32_t questions, uint32_t shot, uint32_t q, uint32_t choice,
                      py_random *r)
{
    uint32_t prompt[3];
    prompt[0] = workload_add_segment(w, shot);
    for (uint32_t i = 0; i < questions; i++) {
        prompt[1] = workload_add_segment(w, between(r, q, 0.5, 1.5));
        uint32_t asked = workload_add_call(w, i, prompt, 2, 0, NULL, 0);
        for (uint32_t c = 0; c < 4; c++) {
            prompt[2] = workload_add_segment(w, between(r, choice, 0.5, 1.5));
            workload_add_call(w, i, prompt, 3, 0, &asked, 1);
        }
    }
}

/* Thought, action and observation come from a recorded run and replace what was
 * generated, so the chain grows by new text. */
static void react(workload *w, uint32_t n, uint32_t shot, uint32_t q, uint32_t step, uint32_t out,
                  uint32_t steps, py_random *r)
{
    uint32_t prompt[MOST_SEGS], after = 0;
    prompt[0] = workload_add_segment(w, shot);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t segs = 2, calls = py_random_randint(r, steps - 1, steps + 1) + 1;
        prompt[1] = workload_add_segment(w, q);
        for (uint32_t k = 0; k < calls; k++) {
            after = workload_add_call(w, i, prompt, segs, out, &after, k > 0);
            prompt[segs++] = workload_add_segment(w, between(r, step, 0.6, 1.4));
        }
    }
}

/* One after another. */
static void generative_agents(workload *w, uint32_t n, uint32_t templates, uint32_t body,
                              uint32_t out)
{
    uint32_t fixed[16], after = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (i < templates) fixed[i] = workload_add_segment(w, body);
        uint32_t prompt[] = {fixed[i % templates], workload_add_segment(w, body / 10)};
        after = workload_add_call(w, i / templates, prompt, 2, out, &after, i > 0);
    }
}

/* 3 plans, 3 solutions of each, 3 reflections on each of those. */
static void tree_of_thought(workload *w, uint32_t n, uint32_t q, uint32_t plan, uint32_t sol,
                            uint32_t ref, uint32_t ask1, uint32_t ask2)
{
    enum { BRANCHES = 3 };
    for (uint32_t i = 0; i < n; i++) {
        uint32_t prompt[5] = {workload_add_segment(w, q)};
        for (uint32_t a = 0; a < BRANCHES; a++) {
            uint32_t plan_call = workload_add_call(w, i, prompt, 1, plan, NULL, 0);
            prompt[1] = workload_output(w, plan_call);
            prompt[2] = workload_add_segment(w, ask1);
            for (uint32_t b = 0; b < BRANCHES; b++) {
                uint32_t sol_call = workload_add_call(w, i, prompt, 3, sol, &plan_call, 1);
                prompt[3] = workload_output(w, sol_call);
                prompt[4] = workload_add_segment(w, ask2);
                for (uint32_t c = 0; c < BRANCHES; c++)
                    workload_add_call(w, i, prompt, 5, ref, &sol_call, 1);
            }
        }
    }
}

/* A chain of five tips, each expanded beside the chain from a template. */
static void skeleton_of_thought(workload *w, uint32_t n, uint32_t head, uint32_t tip, uint32_t tmpl,
                                uint32_t out)
{
    enum { TIPS = 5 };
    uint32_t template = workload_add_segment(w, tmpl), prompt[2 + 2 * TIPS], after = 0;
    prompt[0] = workload_add_segment(w, head);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t segs = 2;
        prompt[1] = workload_add_segment(w, 8);
        for (uint32_t k = 0; k < TIPS; k++) {
            prompt[segs++] = workload_add_segment(w, 2);
            after = workload_add_call(w, i, prompt, segs, tip, &after, k > 0);
            prompt[segs++] = workload_output(w, after);
            uint32_t expand[] = {template, workload_add_segment(w, tip + 10)};
            workload_add_call(w, i, expand, 2, out, &after, 1);
        }
    }
}

/* Six judgements of an article, which re-enter as new text in a merging call. */
static void llm_judge(workload *w, uint32_t n, uint32_t article, uint32_t dimension, uint32_t out)
{
    enum { JUDGES = 6 };
    uint32_t prompt[3] = {workload_add_segment(w, 30)}, judged[JUDGES];
    for (uint32_t i = 0; i < n; i++) {
        prompt[1] = workload_add_segment(w, article);
        for (uint32_t k = 0; k < JUDGES; k++) {
            prompt[2] = workload_add_segment(w, dimension);
            judged[k] = workload_add_call(w, i, prompt, 3, out, NULL, 0);
        }
        prompt[2] = workload_add_segment(w, JUDGES * (out + 6));
        workload_add_call(w, i, prompt, 3, 2, judged, JUDGES);
    }
}

/* Turns of all users, those of one turn in shuffled order. */
static void chat(workload *w, uint32_t users, uint32_t turns, uint32_t q_low, uint32_t q_high,
                 uint32_t a_low, uint32_t a_high, py_random *r)
{
    static _Thread_local uint32_t history[MOST_PROGRAMS][MOST_SEGS];
    uint32_t last[MOST_PROGRAMS], order[MOST_PROGRAMS];
    for (uint32_t t = 0; t < turns; t++) {
        for (uint32_t u = 0; u < users; u++)
            order[u] = u;
        py_random_shuffle(r, order, users);
        for (uint32_t i = 0; i < users; i++) {
            uint32_t u = order[i], *prompt = history[u], segs = 2 * t;
            prompt[segs++] = workload_add_segment(w, py_random_randint(r, q_low, q_high));
            uint32_t out = py_random_randint(r, a_low, a_high);
            last[u] = workload_add_call(w, u, prompt, segs, out, &last[u], t > 0);
            prompt[segs] = workload_output(w, last[u]);
        }
    }
}

/* Documents are asked for as often as Zipf says. */
static void dspy_rag(workload *w, uint32_t n, uint32_t demo, uint32_t passage, uint32_t q,
                     uint32_t out, uint32_t docs, py_random *r)
{
    double weights[64];
    uint32_t documents[64] = {0}, demo_segment = workload_add_segment(w, demo);
    for (uint32_t k = 0; k < docs; k++)
        weights[k] = 1.0 / (k + 1);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = py_random_choice(r, weights, docs);
        if (!documents[k]) documents[k] = workload_add_segment(w, passage);
        uint32_t prompt[] = {demo_segment, documents[k], workload_add_segment(w, q)};
        workload_add_call(w, i, prompt, 3, out, NULL, 0);
    }
}

static void self_consistency(workload *w, uint32_t n, uint32_t q, uint32_t out, uint32_t samples)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t question = workload_add_segment(w, q);
        for (uint32_t k = 0; k < samples; k++)
            workload_add_call(w, i, &question, 1, out, NULL, 0);
    }
}

static void no_reuse(workload *w, uint32_t n, uint32_t prompt, uint32_t out, py_random *r)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t segment = workload_add_segment(w, between(r, prompt, 0.3, 1.7));
        workload_add_call(w, i, &segment, 1, between(r, out, 0.3, 1.7), NULL, 0);
    }
}

static void generated_shared_prefix(workload *w, uint32_t groups, uint32_t per, uint32_t sys,
                                    uint32_t q, uint32_t out)
{
    py_random r; /* a generator of its own */
    uint32_t order[64 * 16], systems[64] = {0};
    bool there[64] = {false};
    py_random_seed(&r, 1);
    for (uint32_t i = 0; i < groups * per; i++)
        order[i] = i;
    py_random_shuffle(&r, order, groups * per);
    for (uint32_t i = 0; i < groups * per; i++) {
        uint32_t g = order[i] / per;
        if (!there[g]) systems[g] = workload_add_segment(w, sys), there[g] = true;
        uint32_t prompt[] = {systems[g], workload_add_segment(w, q)};
        workload_add_call(w, order[i], prompt, 2, out, NULL, 0);
    }
}

static const struct {
    const char *name, *note;
} suite[] = {
    {"mmlu_5shot", "examples of a subject, then a question; 1 token out"},
    {"hellaswag", "20 examples, a question, 4 choices scored: two levels, prefill only"},
    {"react", "agents: examples, then a growing chain of thought, action, observation"},
    {"generative_agents", "5 templates with a long fixed part, one call after another"},
    {"tree_of_thought", "3 plans x 3 solutions x 3 reflections: 39 calls a question"},
    {"skeleton_of_thought", "a chain of 5 short tips, each expanded from a template"},
    {"llm_judge", "branch, solve, merge: 6 judgements of one article"},
    {"json_decode", "one extraction template, structured output"},
    {"multi_turn_short", "4 turns, short answers, turns of 20 users mixed"},
    {"multi_turn_long", "4 turns, long answers, turns of 20 users mixed"},
    {"dspy_rag", "demonstrations, a retrieved passage (Zipf), a question"},
    {"self_consistency", "8 samples of one question"},
    {"no_reuse", "nothing is shared: what the cache costs"},
    {"generated_shared_prefix", "groups behind one system prompt, in shuffled order"},
    {"bench_multiturn", "5 turns of many users"},
    {"hicache_blog", "long chats with answers of one token"},
};

const char *workload_suite_name(uint32_t index)
{
    return index < RAD_COUNT(suite) ? suite[index].name : NULL;
}

static void make(workload *w, uint32_t index, bool paper, py_random *r)
{
#define SIZE(at_paper, at_cpu) (paper ? (at_paper) : (at_cpu))
    switch (index) {
    case 0: few_shot(w, SIZE(57, 8), SIZE(100, 24), SIZE(560, 280), SIZE(95, 48), 1, r); break;
    case 1: hellaswag(w, SIZE(200, 48), SIZE(1700, 480), SIZE(45, 16), SIZE(25, 8), r); break;
    case 2:
        react(w, SIZE(100, 24), SIZE(1750, 440), SIZE(22, 8), SIZE(150, 40), SIZE(60, 16), 4, r);
        break;
    case 3: generative_agents(w, SIZE(1000, 100), 5, SIZE(500, 200), SIZE(20, 8)); break;
    case 4:
        tree_of_thought(w, SIZE(200, 6), SIZE(170, 48), SIZE(80, 24), SIZE(150, 40), SIZE(100, 24),
                        SIZE(50, 14), SIZE(40, 12));
        break;
    case 5:
        skeleton_of_thought(w, SIZE(100, 12), SIZE(45, 16), SIZE(12, 6), SIZE(330, 96),
                            SIZE(110, 32));
        break;
    case 6: llm_judge(w, SIZE(20, 8), SIZE(700, 200), SIZE(110, 32), SIZE(120, 32)); break;
    case 7: few_shot(w, 1, SIZE(50, 24), SIZE(1500, 400), SIZE(200, 50), SIZE(120, 32), r); break;
    case 8: chat(w, 20, 4, SIZE(256, 64), SIZE(512, 128), SIZE(4, 2), SIZE(8, 4), r); break;
    case 9: chat(w, 20, 4, SIZE(256, 64), SIZE(512, 128), SIZE(256, 64), SIZE(512, 128), r); break;
    case 10:
        dspy_rag(w, SIZE(100, 40), SIZE(900, 240), SIZE(350, 90), SIZE(30, 10), SIZE(60, 16),
                 SIZE(40, 16), r);
        break;
    case 11: self_consistency(w, SIZE(50, 16), SIZE(150, 64), SIZE(200, 48), 8); break;
    case 12: no_reuse(w, SIZE(100, 48), SIZE(300, 96), SIZE(200, 48), r); break;
    case 13:
        generated_shared_prefix(w, SIZE(64, 16), SIZE(16, 8), SIZE(2048, 512), SIZE(128, 32),
                                SIZE(256, 64));
        break;
    case 14:
        chat(w, SIZE(256, 32), 5, SIZE(512, 128), SIZE(512, 128), SIZE(64, 16), SIZE(64, 16), r);
        break;
    case 15: chat(w, SIZE(80, 24), SIZE(10, 8), SIZE(2048, 96), SIZE(2048, 96), 1, 1, r); break;
    default: break;
    }
#undef SIZE
}

rad_status workload_suite_make(const rad_env *env, uint32_t index, bool paper_size, workload *out,
                               rad_error *err)
{
    py_random r;
    if (index >= RAD_COUNT(suite))
        return rad_fail(err, RAD_NONE, "workload: the suite has %zu, there is no number %u",
                        RAD_COUNT(suite), index);
    py_random_seed(&r, 7);
    for (uint32_t i = 0;; i++) {
        workload_init(out, env, suite[i].name, suite[i].note);
        make(out, i, paper_size, &r);
        bool nomem = out->nomem;
        if (i == index && !nomem) return RAD_OK;
        workload_fini(out);
        if (nomem) return rad_fail(err, RAD_E_NOMEM, "workload: no memory for %s", suite[i].name);
    }
}
