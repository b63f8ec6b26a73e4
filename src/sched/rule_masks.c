/* rule_masks.c - see the header.
 *
 * One helper is enough: a mask takes some ten microseconds, a forward pass milliseconds. It would
 * pay to spread them only where it does not pay to hurry.
 *
 * Invariant: the helper looks at jobs, bits and rules only between begin, which sets `busy` under
 * the lock, and the end of wait, which sees it cleared under the lock. */
#include "sched/rule_masks.h"

#include "base/compute_pool.h"
#include "base/thread_time.h"

/* Of a core, for two threads that hand each other the turn; where others wait for the cores it is a
 * time slice of theirs. */
enum { WAKING_NS = 10000 };

rad_status rule_masks_init(rule_masks *m, const rad_env *env, uint32_t max_rows,
                           uint32_t vocab_size)
{
    *m = (rule_masks){.env = *env,
                      .max_rows = max_rows,
                      .words = (vocab_size + 31) / 32,
                      .job_ns = WAKING_NS + 1};
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->work, NULL);
    pthread_cond_init(&m->done, NULL);
    m->kind = rad_alloc(env, rad_mul(max_rows, sizeof *m->kind));
    m->jobs = rad_alloc(env, rad_mul(max_rows, sizeof *m->jobs));
    m->bits = rad_alloc_sparse(env, rad_mul(rad_mul(max_rows, m->words), sizeof *m->bits));
    return m->kind && m->jobs && m->bits ? RAD_OK : RAD_E_NOMEM;
}

void rule_masks_fini(rule_masks *m)
{
    if (!m->max_rows) return;
    if (m->started) {
        pthread_mutex_lock(&m->lock);
        m->stop = true;
        pthread_cond_signal(&m->work);
        pthread_mutex_unlock(&m->lock);
        pthread_join(m->helper, NULL);
    }
    pthread_cond_destroy(&m->done);
    pthread_cond_destroy(&m->work);
    pthread_mutex_destroy(&m->lock);
    rad_free_sparse(&m->env, m->bits, rad_mul(rad_mul(m->max_rows, m->words), sizeof *m->bits));
    rad_free(&m->env, m->jobs, rad_mul(m->max_rows, sizeof *m->jobs));
    rad_free(&m->env, m->kind, rad_mul(m->max_rows, sizeof *m->kind));
    *m = (rule_masks){0};
}

/* Leaves the rule where it stood. */
static void run_job(rule_masks *m, const mask_job *job)
{
    const token_rule_ops *ops = job->rule->ops;
    for (uint32_t i = 0;; i++) {
        const uint32_t row = job->row + i;
        m->kind[row] = ops->mask(job->rule, m->bits + (size_t)row * m->words);
        if (i == job->num_drafts) break;
        if (ops->accept(job->rule, job->drafts[i])) continue;
        /* It did when the step was planned: its memory is short. Nothing comes of these rows. */
        for (uint32_t k = i; k < job->num_drafts; k++)
            m->kind[job->row + k + 1] = TOKEN_MASK_NONE;
        if (i) ops->roll_back(job->rule, i);
        return;
    }
    if (job->num_drafts) ops->roll_back(job->rule, job->num_drafts);
}

/* In time of this thread: the env's clock is the scheduler's. */
static void run_jobs(rule_masks *m)
{
    uint64_t start = thread_time_ns();
    for (uint32_t i = 0; i < m->num_jobs; i++)
        run_job(m, &m->jobs[i]);
    m->ns = thread_time_ns() - start;
    m->job_ns = RAD_MAX(m->ns / m->num_jobs, m->job_ns / 2);
}

static void *help(void *arg)
{
    rule_masks *m = arg;
    pthread_mutex_lock(&m->lock);
    for (;;) {
        while (!m->busy && !m->stop)
            pthread_cond_wait(&m->work, &m->lock);
        if (m->stop) break;
        pthread_mutex_unlock(&m->lock);
        run_jobs(m);
        pthread_mutex_lock(&m->lock);
        m->busy = false;
        pthread_cond_signal(&m->done);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

void rule_masks_clear(rule_masks *m)
{
    m->num_jobs = 0;
}

void rule_masks_add(rule_masks *m, mask_job job)
{
    RAD_ASSERT_ENV(&m->env,
                   m->num_jobs < m->max_rows && (uint64_t)job.row + job.num_drafts < m->max_rows);
    m->jobs[m->num_jobs++] = job;
}

void rule_masks_begin(rule_masks *m)
{
    m->ns = 0;
    m->helped = m->num_jobs * m->job_ns > WAKING_NS;
    if (!m->helped) return;
    if (!m->started) m->started = compute_thread_create(&m->helper, help, m) == 0;
    m->helped = m->started;
    if (!m->started) return;
    pthread_mutex_lock(&m->lock);
    m->busy = true;
    pthread_cond_signal(&m->work);
    pthread_mutex_unlock(&m->lock);
}

uint64_t rule_masks_wait(rule_masks *m)
{
    if (!m->num_jobs) return 0;
    if (!m->helped) {
        run_jobs(m);
        return m->ns;
    }
    pthread_mutex_lock(&m->lock);
    while (m->busy)
        pthread_cond_wait(&m->done, &m->lock);
    pthread_mutex_unlock(&m->lock);
    return m->ns;
}
