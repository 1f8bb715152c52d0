/*
 * A rig for tests of daemon/core: a core, virtual time, and sessions with
 * collected lines. Its store does nothing by itself. Operations gather in the
 * order of asking until the test finishes them. core_check() runs after each
 * step.
 */
#ifndef HOLDFAST_TESTS_UNIT_CORE_RIG_H
#define HOLDFAST_TESTS_UNIT_CORE_RIG_H

#include "tests/unit/rig_test.h"

#include "daemon/core/core.h"
#include "daemon/op/op.h"

/* As ck_assert(), but at no cost where it holds. */
#define rig_must(condition)                 \
    do {                                    \
        if (!(condition))                   \
            ck_abort_msg("%s", #condition); \
    } while (0)

#define RIG_SESSIONS 80
#define RIG_OPS      4096
#define RIG_LINES    65536
#define RIG_LEASE_MS 30000u
/* From a deadline to the end of the lease, in us. */
#define RIG_MARGIN_US 302000u
#define SECOND_US     1000000u

struct rig_session {
    struct handle handle;
    uint8_t id[16];
    bool closed;      /* EFFECT_CLOSE came; nothing may follow */
    uint32_t more;    /* EFFECT_MOREs */
    uint32_t finals;  /* OK and ERR lines */
    uint32_t written; /* of `lines` */
    uint32_t read;
    char lines[RIG_LINES];
};

struct rig {
    struct core_settings settings;
    struct counters counters;
    struct effects effects;
    struct core *core; /* owned */
    uint64_t now_us;
    struct op *ops[RIG_OPS]; /* submitted, not finished yet */
    uint64_t asked_us[RIG_OPS];
    uint32_t op_count;
    uint32_t hurried; /* operations that were to hurry, as often as they were */
    uint32_t hooks;   /* EFFECT_HOOKs */
    char hook[4096];  /* the last one's environment, with blanks between */
    uint32_t opened;  /* each has another id */
    /* Of those that are opened from now on. */
    uint8_t address[16];
    uint64_t silence_us; /* on TCP */
    struct user *user;   /* ref */
    uint32_t mark;
    bool opening;
    uint32_t session_count;
    struct rig_session sessions[RIG_SESSIONS];
};

/* Settings that a test may change before rig_start(). */
struct rig *rig_create(void);
void rig_start(struct rig *rig);

/* A started one. */
struct rig *rig_new(void);

/* Ends all sessions and operations, and checks that nothing is left. */
void rig_end(struct rig *rig);

/* Frees it as it is. */
void rig_free(struct rig *rig);

/* A test of `rig`, which begins as the expression says. */
#define RIG_TEST(name, ...) RIG_TEST_AS(name, struct rig, __VA_ARGS__, rig_end)

/* The same of a started rig with a session, `s`. */
#define SESSION_TEST(name)                                      \
    static void name##_of(struct rig *rig, unsigned s, int _i); \
    RIG_TEST(name, rig_new())                                   \
    {                                                           \
        name##_of(rig, rig_open(rig), _i);                      \
    }                                                           \
    static void name##_of(CK_ATTRIBUTE_UNUSED struct rig *rig,  \
        CK_ATTRIBUTE_UNUSED unsigned s, CK_ATTRIBUTE_UNUSED int _i)

/* A session on a Unix socket, or on TCP; its greeting has been read. */
unsigned rig_open(struct rig *rig);
unsigned rig_open_tcp(struct rig *rig);

/* A session on a Unix socket that is kept for 10 s. */
unsigned rig_open_kept(struct rig *rig);

/* A new session in the place of one that has ended; its greeting is dropped. */
void rig_reopen(struct rig *rig, unsigned session);

/* Its id, in hex, as the greeting has it; 33 bytes. */
void rig_id(const struct rig *rig, unsigned session, char *hex);

/* `to` says HELLO resume= of `from`'s session, and `rest` behind it. */
void rig_resume(struct rig *rig, unsigned from, unsigned to,
    unsigned generation, const char *rest);

/* `by` says KILL of that session. */
void rig_kill(struct rig *rig, unsigned by, unsigned session);

void rig_event(struct rig *rig, unsigned session, enum core_event_kind kind);
void rig_step(struct rig *rig, struct core_event *event);
void rig_say(struct rig *rig, unsigned session, const char *line);

/* Lets time pass, timer by timer, or in one jump. */
void rig_pass_us(struct rig *rig, uint64_t us);
void rig_pass(struct rig *rig, uint64_t ms);
void rig_stall(struct rig *rig, uint64_t ms);

/* The session's next line without its free text; empty: there is none. */
char *rig_line(struct rig *rig, unsigned session);

/* Its next line is this one; a '~' stands for any run of non-blanks. A pattern
 * without `lease_ms=` or `renewed=` passes over that pair: each OK of a LOCK
 * has one of them. So does one without the `keep=` of BYE, or without the times
 * of HELLO. */
void rig_expect(struct rig *rig, unsigned session, const char *pattern);
/* The next line has the text. It is not read by that. */
void rig_text(struct rig *rig, unsigned session, const char *text);

void rig_silent(struct rig *rig, unsigned session);

/* Says the line, and expects that reply. */
void rig_ask(
    struct rig *rig, unsigned session, const char *line, const char *pattern);

/* The oldest operation not finished yet, which is of that kind. */
struct op *rig_op(struct rig *rig, enum op_kind kind);

/* Likewise, and for that lock. */
struct op *rig_op_on(struct rig *rig, enum op_kind kind, const char *name);

/* Grants the OP_ACQUIRE on that lock, the oldest one. Returns its request. */
uint64_t rig_grant_on(struct rig *rig, const char *name, uint64_t fence);

/* Finishes the OP_RELEASE on that lock, the oldest one. */
void rig_released_on(struct rig *rig, const char *name);
void rig_no_op(struct rig *rig);

/* Gives an operation back; sent when asked where `sent_us` is 0. */
void rig_finish(struct rig *rig, struct op *op, struct op_result result);
void rig_status(struct rig *rig, struct op *op, enum op_status status);
void rig_granted(struct rig *rig, struct op *op, uint64_t fence);
void rig_queued(struct rig *rig, struct op *op);

/* LOCK, granted: the session holds it. */
void rig_lock(
    struct rig *rig, unsigned session, const char *request, uint64_t fence);

/* LOCK that waits. */
void rig_wait(struct rig *rig, unsigned session, const char *request);

void rig_hint(struct rig *rig, uint64_t request);
void rig_broken(struct rig *rig, uint64_t request, uint64_t fence);
void rig_news(struct rig *rig, const char *news, size_t len);
void rig_stop(struct rig *rig);

/* Messages of another broker in a search for cycles; see feature/probe.c.
 * A node's name has one letter. */
#define RIG_NODE_BYTES  58
#define RIG_ASKED_BYTES 40

struct rig_node {
    const void *session; /* 16 bytes */
    const char *broker;  /* 8 bytes */
    uint64_t request;
    uint64_t since_us;
    uint64_t fence;
    char name;
};

extern const char rig_other_session[16];
extern const char rig_other_broker[9];

/* Writes one there, and returns the end. */
char *rig_node(char *at, const struct rig_node *node);

/* 'V': the other session holds `fence` of `b`, which that session waits for by
 * `request` since after, and waits for `a`, which that session has by `own`. */
void rig_verify(struct rig *rig, const void *session, uint64_t request,
    uint64_t fence, uint64_t own);
uint64_t rig_count(const struct rig *rig, enum counter counter);

#endif
