/*
 * The question to the broker of a hold: does it know the hold? An audit has one
 * such question open at a time.
 */
#include "daemon/core/feature/audit.h"

#include "daemon/core/feature/message.h"
#include "daemon/core/model/lock.h"
#include "daemon/core/model/ticket.h"

#include "daemon/base/assert.h"

#define ANSWER_US 2000000 /* another broker's, and then once more */

#define WHO_BYTES      (16 + 8)
#define QUESTION_BYTES (1 + 8 + 8 + WHO_BYTES) /* and the name */
#define ANSWER_BYTES   (1 + 8 + 1)

/* Whether this broker has to do with that lock for that owner. */
static bool
broker_knows(const struct core *core, struct text name,
    const uint8_t session[16], const uint8_t owner_hash[8])
{
    const struct lock *lock = lock_find(core, name);

    if (lock == NULL)
        return false;
    LIST_EACH (link, &lock->tickets) {
        const struct ticket *ticket =
            container_of(link, struct ticket, lock_link);
        if (memcmp(ticket->session_id, session, 16) == 0 &&
            memcmp(&ticket->owner_hash, owner_hash, 8) == 0)
            return true;
    }
    return false;
}

/* 'Q', a number, who asks, a session, an owner, a lock. Asked twice, it has the
 * same number: an answer to either will do. */
static void
question_send(
    struct core *core, const struct finding *finding, enum audit_state state)
{
    struct audit *audit = core->audit;
    struct text name = case_name(audit);
    char words[QUESTION_BYTES + PROTO_NAME_MAX];

    require(finding->kind == FINDING_HELD && name.len <= PROTO_NAME_MAX);
    audit->question += state == AUDIT_WONDERS;
    words[0] = 'Q';
    memcpy(words + 1, &audit->question, 8);
    memcpy(words + 9, core->settings.broker_id, 8);
    memcpy(words + 17, finding->session, 16);
    memcpy(words + 33, finding->owner_hash, 8);
    memcpy(words + QUESTION_BYTES, name.at, name.len);
    message_tell(core, finding->broker, name,
        text_make(words, QUESTION_BYTES + name.len));
    audit_pause(core, state, ANSWER_US);
}

/* Another broker asks: 'A', its number, and whether. */
static void
question_answer(struct core *core, struct text news)
{
    char words[ANSWER_BYTES];
    struct text name =
        text_make(news.at + QUESTION_BYTES, news.len - QUESTION_BYTES);
    uint8_t who[WHO_BYTES];

    memcpy(who, news.at + 17, sizeof(who));
    words[0] = 'A';
    memcpy(words + 1, news.at + 1, 8);
    words[9] = broker_knows(core, name, who, who + 16);
    message_tell(core, news.at + 9, name, text_make(words, sizeof(words)));
}

void
question_told(struct core *core, struct text words)
{
    struct audit *audit = core->audit;

    if (audit_wonders(audit) && words.at[0] == 'Q' &&
        memcmp(words.at + 1, &audit->question, 8) == 0)
        audit->published = audit->question;
}

static bool
broker_is_silent(const struct audit *audit, const char *broker)
{
    require(audit->silent_count <= SILENT_MAX);
    for (uint32_t i = 0; i < audit->silent_count; i++)
        if (memcmp(audit->silent[i], broker, 8) == 0)
            return true;
    return false;
}

/* It is none where its broker knows it and it is not old. If the broker does
 * not know it, the hold may have ended since it was read. */
static void
finding_is_known(struct audit *audit, struct finding *finding, bool known)
{
    require(finding->kind == FINDING_HELD);
    require(finding == &audit->findings[audit->finding_at]);
    finding->stage = known ? FINDING_SURE : FINDING_UNKNOWN;
    if (known && !finding->old)
        audit->finding_at++;
}

static bool
question_answered(struct core *core, struct text news)
{
    struct audit *audit = core->audit;

    if (!audit_wonders(audit) || memcmp(news.at + 1, &audit->question, 8) != 0)
        return false;
    require(audit->finding_at < audit->finding_count);
    wheel_remove(&core->wheel, &audit->timer);
    finding_is_known(
        audit, &audit->findings[audit->finding_at], news.at[9] != 0);
    return true;
}

bool
question_news(struct core *core, struct text news)
{
    if (news.at[0] == 'Q' && news.len > QUESTION_BYTES &&
        news.len <= QUESTION_BYTES + PROTO_NAME_MAX)
        question_answer(core, news);
    else if (news.at[0] == 'A' && news.len == ANSWER_BYTES)
        return question_answered(core, news);
    return false;
}

bool
question_timer(struct core *core)
{
    struct audit *audit = core->audit;
    struct finding *finding = &audit->findings[audit->finding_at];

    require(audit_wonders(audit));
    if (audit->state == AUDIT_WONDERS) {
        question_send(core, finding, AUDIT_WONDERS_AGAIN);
        return false;
    }
    bool silent = audit->published == audit->question;
    if (silent && audit->silent_count < SILENT_MAX)
        memcpy(audit->silent[audit->silent_count++], finding->broker, 8);
    finding_is_known(audit, finding, !silent);
    return true;
}

bool
question_ask(struct core *core, struct finding *finding)
{
    struct audit *audit = core->audit;

    require(finding == &audit->findings[audit->finding_at]);
    if (finding->kind != FINDING_HELD) {
        finding->stage = FINDING_SURE;
    } else if (memcmp(finding->broker, core->settings.broker_id, 8) == 0) {
        finding_is_known(audit, finding,
            broker_knows(
                core, case_name(audit), finding->session, finding->owner_hash));
    } else if (broker_is_silent(audit, finding->broker)) {
        finding_is_known(audit, finding, false);
    } else {
        question_send(core, finding, AUDIT_WONDERS);
        return false;
    }
    return true;
}
