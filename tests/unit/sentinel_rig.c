/*
 * The rig of the tests about Sentinels; see sentinel_rig.h.
 */
#include "tests/unit/sentinel_rig.h"

#include <string.h>

/* Whether there was anything to answer. */
static bool
serve(struct srig *rig, uint32_t index)
{
    struct srig_conn *conn = &rig->conns[index];
    bool any = false;

    if (conn->silent)
        return false;
    if (conn->connecting) {
        srig_connect(rig, index);
        any = true;
    }
    while (conn->open && srig_next(rig, index)[0] != '\0') {
        any = true;
        if (text_equal(rig->words[0], TEXT("EVALSHA")))
            srig_results(rig, index, (rig->word_count - 4) / 2, RECORD_OK);
        else
            srig_answer(rig, index);
    }
    return any;
}

/*
 * Turns and answers until nothing is left to do at this time. That takes few
 * turns: a next time that stays in the past would be a busy loop.
 */
static void
serve_all(struct srig *rig)
{
    bool any = true;

    for (int turns = 0; any || store_next_us(rig->store) <= rig->now_us;
         turns++) {
        ck_assert_int_lt(turns, 30);
        srig_turn(rig);
        any = false;
        for (uint32_t i = 0; i < CONN_COUNT; i++)
            any = serve(rig, i) || any;
    }
}

void
sen_run(struct srig *rig, unsigned ms)
{
    serve_all(rig);
    for (unsigned i = 0; i < ms; i++) {
        rig->now_us += 1000;
        serve_all(rig);
    }
}

struct srig *
sen_ready(void)
{
    struct srig *rig = srig_sentinel();

    sen_run(rig, 100);
    return rig;
}

void
sen_silence(struct srig *rig, uint32_t first, uint32_t last)
{
    for (uint32_t i = first; i <= last; i++)
        rig->conns[i].silent = true;
}

void
sen_wake(struct srig *rig, uint32_t first, uint32_t last)
{
    for (uint32_t i = first; i <= last; i++)
        rig->conns[i].silent = false;
}

void
sen_name(struct srig *rig, unsigned sentinel, const char *port)
{
    rig->names[sentinel] =
        (struct srig_name){port == NULL ? NULL : "10.0.0.1", port};
}

void
sen_name_all(struct srig *rig, const char *port)
{
    for (unsigned i = 0; i < rig->settings.node_count; i++)
        sen_name(rig, i, port);
}

void
sen_switched(struct srig *rig)
{
    srig_message(rig, CONN_SWITCHES, "+switch-master",
        TEXT("shop 10.0.0.1 7000 10.0.0.1 7001"));
}

static bool
is_up(const struct srig_conn *conn)
{
    return conn->connecting || conn->open;
}

uint32_t
sen_find_conn(const struct srig *rig, uint16_t port)
{
    for (uint32_t i = rig->settings.node_count; i < CONN_SUBSCRIBER; i++)
        if (rig->conns[i].port == port && is_up(&rig->conns[i]))
            return i;
    return CONN_COUNT;
}

bool
sen_has_conn(const struct srig *rig, uint16_t port)
{
    return sen_find_conn(rig, port) < CONN_COUNT;
}

bool
sen_no_conn(const struct srig *rig)
{
    for (uint32_t i = rig->settings.node_count; i < CONN_SUBSCRIBER; i++)
        if (is_up(&rig->conns[i]))
            return false;
    return true;
}

void
sen_no_master(const struct srig *rig)
{
    ck_assert(sen_no_conn(rig));
    ck_assert(!store_ready(rig->store));
}

void
sen_works(struct srig *rig, enum op_kind kind, unsigned ms)
{
    struct op *op = srig_op(rig, kind, 0);

    sen_run(rig, ms);
    srig_status(rig, op, OP_OK);
}

void
sen_trust_ends(struct srig *rig)
{
    sen_silence(rig, 0, 2);
    for (unsigned ms = 0; store_ready(rig->store); ms++) {
        ck_assert_uint_le(ms, TRUST_MS);
        sen_run(rig, 1);
    }
}

void
sen_asked(struct srig *rig)
{
    srig_turn(rig);
    for (uint32_t i = 0; i < 3; i++) {
        srig_expect(rig, i, QUESTION);
        srig_expect(rig, i, "");
    }
}

void
sen_not_asked(struct srig *rig)
{
    for (uint32_t i = 0; i < 3; i++)
        srig_expect(rig, i, "");
}

void
sen_asked_anew(struct srig *rig)
{
    srig_turn(rig);
    for (uint32_t i = 0; i < 3; i++)
        srig_exchange(rig, i, QUESTION);
}

void
sen_answer_late(struct srig *rig, uint32_t link)
{
    rig->words[0] = TEXT("SENTINEL");
    srig_answer(rig, link);
}

void
sen_no_call(struct srig *rig, uint32_t link)
{
    while (srig_next(rig, link)[0] != '\0')
        ck_assert_int_ne(rig->words[0].at[0], 'E');
}
