/*
 * Lines of a client: what it sends, and what it makes of what it reads. Knows
 * the protocol's forms and which answers make sense to which request; what an
 * answer means for a hold is client_task.c's.
 */
#include "tests/sim/drill.h"

#include "daemon/base/assert.h"
#include "daemon/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WORDS_MAX 16

const char *const verb_names[VERB_COUNT] = {
    [VERB_HELLO] = "HELLO",
    [VERB_LOCK] = "LOCK",
    [VERB_UNLOCK] = "UNLOCK",
    [VERB_PART] = "UNLOCK",
    [VERB_RESIZE] = "RESIZE",
    [VERB_RENEW] = "RENEW",
    [VERB_NOTE] = "NOTE",
    [VERB_GIVE_BACK] = "UNLOCK",
    [VERB_PROLONG] = "RENEW",
    [VERB_CANCEL] = "CANCEL",
    [VERB_SHOW] = "SHOW",
    [VERB_HELD] = "HELD",
    [VERB_PING] = "PING",
    [VERB_QUIT] = "QUIT",
    [VERB_CLAIM] = "CLAIM",
    [VERB_WATCH] = "WATCH",
    [VERB_AWAIT] = "AWAIT",
    [VERB_UNWATCH] = "UNWATCH",
    [VERB_BREAK] = "BREAK",
    [VERB_KILL] = "KILL",
    [VERB_BAD] = "a bad line",
};

#define TO(verb) (1u << VERB_##verb)
#define TO_ALL   ((1u << VERB_COUNT) - 1)

/* The errors of this protocol: retry=, and what may be answered with them. */
static const struct {
    const char *code;
    const char *retry;
    uint32_t verbs;
} error_codes[] = {
    {"BADREQ", "retry=0", TO(BAD) | TO(CANCEL)},
    {"UNKNOWN", "retry=0", TO(BAD)},
    {"TOOLONG", "retry=0", TO(BAD)},
    {"LIMIT", "retry=1", TO_ALL},
    {"BUSY", "retry=1", TO(LOCK) | TO(AWAIT)},
    {"TIMEOUT", "retry=1", TO(LOCK) | TO(AWAIT)},
    {"CANCELLED", "retry=1", TO(LOCK) | TO(AWAIT)},
    {"NOTHELD", "retry=0",
        TO(UNLOCK) | TO(RENEW) | TO(NOTE) | TO(UNWATCH) | TO(KILL) |
            TO(GIVE_BACK) | TO(PROLONG) | TO(PART) | TO(RESIZE)},
    {"STALE", "retry=0", TO(UNLOCK) | TO(RENEW) | TO(NOTE) | TO(PART)},
    {"LOST", "retry=0",
        TO(UNLOCK) | TO(RENEW) | TO(NOTE) | TO(CLAIM) | TO(PART)},
    {"CONFLICT", "retry=0",
        TO(LOCK) | TO(GIVE_BACK) | TO(PROLONG) | TO(PART) | TO(BAD)},
    {"DEADLOCK", "retry=1", TO(LOCK)},
    {"UNAVAILABLE", "retry=1",
        TO(LOCK) | TO(RENEW) | TO(NOTE) | TO(SHOW) | TO(CLAIM) | TO(WATCH) |
            TO(BREAK) | TO(HELD) | TO(GIVE_BACK) | TO(PROLONG) | TO(AWAIT) |
            TO(RESIZE)},
    {"INDOUBT", "retry=1",
        TO(LOCK) | TO(UNLOCK) | TO(RENEW) | TO(NOTE) | TO(CLAIM) | TO(BREAK) |
            TO(GIVE_BACK) | TO(PROLONG) | TO(PART) | TO(RESIZE)},
    {"DRAINING", "retry=1", TO(LOCK) | TO(CLAIM) | TO(AWAIT) | TO(BAD)},
    {"INTERNAL", "retry=0",
        TO(LOCK) | TO(UNLOCK) | TO(RENEW) | TO(NOTE) | TO(SHOW) | TO(CLAIM) |
            TO(BREAK) | TO(GIVE_BACK) | TO(PROLONG) | TO(PART) | TO(RESIZE)},
};

/* A line that came, cut into words; free text is left out. */
struct line {
    uint32_t count;
    struct text words[WORDS_MAX];
};

static void
wire_broken(struct client *client, const struct line *line, const char *what)
{
    char text[200];
    size_t len = 0;

    for (uint32_t i = 0; i < line->count; i++) {
        size_t room = sizeof(text) - len;
        int part = snprintf(text + len, room, " %.*s", (int)line->words[i].len,
            line->words[i].at);
        if (part < 0 || (size_t)part >= room)
            break;
        len += (size_t)part;
    }
    text[len] = '\0';
    check_broken(client->world->check, PROMISE_ANSWERED, client->world->now_us,
        "%s: %s:%s", client->machine->name, what, text);
}

/* Text for people is no part of the hash. */
void
wire_trace(const struct client *client, char how, const char *text, size_t len)
{
    uint64_t us = client->world->now_us - WORLD_START_US;

    if (client->world->trace)
        printf("%5" PRIu64 ".%06" PRIu64 "  %-9s %c %.*s\n", us / 1000000,
            us % 1000000, client->machine->name, how, (int)len, text);
}

/* --- sending -------------------------------------------------------------- */

static void
wire_put(struct client *client, const char *text, size_t len)
{
    if (client->out_len + len > sizeof(client->out))
        wire_flush(client);
    require(client->out_len + len <= sizeof(client->out));
    memcpy(client->out + client->out_len, text, len);
    client->out_len += (uint32_t)len;
}

static void
wire_number(struct client *client, uint64_t number)
{
    char digits[20] = "";
    size_t len = text_from_u64(digits, number);

    wire_put(client, digits, len);
}

static void
wire_tag(struct client *client, uint64_t serial)
{
    wire_put(client, "1c", 2);
    wire_number(client, client->number);
    wire_put(client, "-", 1);
    wire_number(client, serial);
}

/* Tags grow; one whose place is taken is left out. */
static struct request *
request_take(struct client *client)
{
    if (client->requests_now == CLIENT_REQUESTS)
        return NULL;
    for (;;) {
        struct request *request =
            &client->requests[++client->serial & (CLIENT_REQUESTS - 1)];
        if (request->serial == 0) {
            memset(request, 0, sizeof(*request));
            request->serial = client->serial;
            client->requests_now++;
            return request;
        }
    }
}

struct request *
wire_begin(struct client *client, enum verb verb, struct task *task)
{
    if (client->link != LINK_OPEN || client->finishing)
        return NULL;
    struct request *request = request_take(client);
    if (request == NULL)
        return NULL;
    request->verb = verb;
    request->task = task;
    request->sent_us = machine_boot_us(client->machine);
    request->true_sent_us = client->world->now_us;
    wire_tag(client, request->serial);
    if (verb != VERB_BAD)
        wire_word(client, verb_names[verb]);
    if (verb == VERB_CANCEL && task != NULL) {
        wire_put(client, " ", 1);
        wire_tag(client, task->asking);
    } else if (task != NULL) {
        request->lock = task->lock;
        wire_lock(client, task->lock);
        wire_owner(client, task->owner);
    }
    return request;
}

void
wire_word(struct client *client, const char *word)
{
    wire_put(client, " ", 1);
    wire_put(client, word, strlen(word));
}

void
wire_lock(struct client *client, uint32_t lock)
{
    wire_word(client, plan_lock_name(lock));
}

void
wire_pair(struct client *client, const char *key, uint64_t value)
{
    wire_word(client, key);
    wire_put(client, "=", 1);
    wire_number(client, value);
}

void
wire_owner(struct client *client, uint32_t owner)
{
    char word[] = " owner=a";

    if (owner == 0)
        return;
    word[sizeof(word) - 2] = (char)('a' + owner - 1);
    wire_put(client, word, sizeof(word) - 1);
}

void
wire_end(struct client *client)
{
    wire_put(client, "\n", 1);
}

bool
wire_cancel(struct client *client, uint64_t serial)
{
    if (wire_begin(client, VERB_CANCEL, NULL) == NULL)
        return false;
    wire_put(client, " ", 1);
    wire_tag(client, serial);
    wire_end(client);
    return true;
}

void
wire_flush(struct client *client)
{
    if (client->out_len == 0)
        return;
    wire_trace(client, '>', client->out, client->out_len - 1);
    net_send(client->world->net, client->connection, client->machine,
        client->out, client->out_len);
    client->out_len = 0;
}

/* One that needs nothing but its verb. */
bool
wire_request(struct client *client, enum verb verb)
{
    if (wire_begin(client, verb, NULL) == NULL)
        return false;
    wire_end(client);
    return true;
}

static void
wire_overlong(struct client *client)
{
    char name[500];

    if (wire_begin(client, VERB_BAD, NULL) == NULL)
        return;
    memset(name, 'n', sizeof(name));
    wire_word(client, "LOCK ");
    for (unsigned i = 0; i < 10; i++)
        wire_put(client, name, sizeof(name));
    wire_end(client);
}

/* A line that is wrong, or none, or one without a tag. */
void
wire_mistake(struct client *client)
{
    static const char *const bad[] = {"RELEASEX lock-0", "LOCK",
        "LOCK lock-0 wait=1 wait=2", "UNLOCK lock-0 fence=0", "PONG x",
        "LOCK lock-0 lock-0", "CANCEL lock-0 x=1", "lOCKS lock-0",
        "LOCK lock-%4", "PING wait=1", "LOCK lock-0 permits=2",
        "LOCK lock-0 limit=2 permits=3", "LOCK lock-0 limit=2 mode=shared",
        "LOCK lock-0 mode=upside", "CLAIM lock-0", "HELLO gen=3",
        "HELLO resume=00 gen=2"};
    static const char *const untagged[] = {
        "4+ PING\n", "PING\n", "LOCK\n", "0123456789abcdefg PING\n"};
    static const char *const silent[] = {"\n", "   \n", "PONG 7\n", "\r\n"};
    struct world *world = client->world;

    if (client->link != LINK_OPEN || client->finishing)
        return;
    switch (world_below(world, 8)) {
    case 0: {
        const char *line = silent[world_below(world, 4)];
        wire_put(client, line, strlen(line));
        return;
    }
    case 1: {
        const char *line = untagged[world_below(world, 4)];
        wire_put(client, line, strlen(line));
        client->untagged++;
        return;
    }
    case 2:
        if (world_odds(world, 8))
            wire_overlong(client);
        return;
    default:
        if (wire_begin(client, VERB_BAD, NULL) != NULL) {
            wire_word(
                client, bad[world_below(world, sizeof(bad) / sizeof(bad[0]))]);
            wire_end(client);
        }
        return;
    }
}

void
wire_reset(struct client *client)
{
    memset(client->requests, 0, sizeof(client->requests));
    client->requests_now = 0;
    client->untagged = 0;
    client->out_len = 0;
    client->in_len = 0;
    client->in_skips = false;
}

/* --- reading -------------------------------------------------------------- */

static bool
word_is(const struct line *line, uint32_t at, const char *word)
{
    return at < line->count && text_equal(line->words[at], text_from(word));
}

/* The value of a key among the words; its length is 0 where it is missing. */
static struct text
line_value(const struct line *line, const char *key)
{
    size_t len = strlen(key);

    for (uint32_t i = 2; i < line->count; i++) {
        struct text word = line->words[i];
        if (word.len > len && word.at[len] == '=' &&
            memcmp(word.at, key, len) == 0)
            return text_make(word.at + len + 1, word.len - len - 1);
    }
    return text_make("", 0);
}

static bool
line_number(const struct line *line, const char *key, uint64_t *out)
{
    return text_to_u64(line_value(line, key), UINT64_MAX, out);
}

/* The lock of a word; false: no such. */
static bool
lock_of(const struct client *client, struct text name, uint32_t *lock)
{
    return plan_lock_of(
        name.at, name.len, plan_lock_count(&client->world->plan), lock);
}

/* The owner of a line; UINT32_MAX: none of ours. */
static uint32_t
owner_of(const struct line *line)
{
    struct text word = line_value(line, "owner");

    if (word.len == 0)
        return 0;
    if (word.len > 1 || word.at[0] < 'a')
        return UINT32_MAX;
    return (uint32_t)(word.at[0] - 'a') + 1;
}

/* The request that a tag is of; NULL: none that is under way. */
static struct request *
request_of(struct client *client, struct text tag)
{
    char prefix[24];
    uint64_t serial;
    size_t len = 2;

    prefix[0] = '1';
    prefix[1] = 'c';
    len += text_from_u64(prefix + 2, client->number);
    prefix[len++] = '-';
    if (tag.len <= len || memcmp(tag.at, prefix, len) != 0 ||
        !text_to_u64(
            text_make(tag.at + len, tag.len - len), UINT64_MAX, &serial) ||
        serial == 0)
        return NULL;
    struct request *request = &client->requests[serial & (CLIENT_REQUESTS - 1)];
    return request->serial == serial ? request : NULL;
}

/* One fence, or several with commas. */
static void
fences_read(struct text list, struct answer *a)
{
    while (list.len > 0 && a->fence_count < CLIENT_TASKS) {
        const char *comma = memchr(list.at, ',', list.len);
        size_t len = comma != NULL ? (size_t)(comma - list.at) : list.len;
        if (!text_to_u64(text_make(list.at, len), UINT64_MAX,
                &a->fences[a->fence_count]))
            return;
        a->fence_count++;
        if (comma == NULL)
            break;
        list = text_make(comma + 1, list.len - len - 1);
    }
    a->has_fence = a->fence_count > 0;
    a->fence = a->fences[0];
}

static void
answer_read(const struct line *line, struct answer *a)
{
    memset(a, 0, sizeof(*a));
    fences_read(line_value(line, "fence"), a);
    a->has_ttl = line_number(line, "ttl_ms", &a->ttl_ms);
    a->has_count = line_number(line, "count", &a->count);
    a->has_permits = line_number(line, "permits", &a->permits);
    (void)line_number(line, "limit", &a->limit);
    a->upgrade = line_value(line, "upgrade").len > 0;
}

/* The code of an ERR, where it makes sense for the request. */
static const char *
error_read(struct client *client, const struct request *request,
    const struct line *line)
{
    for (size_t i = 0; i < sizeof(error_codes) / sizeof(error_codes[0]); i++) {
        if (!word_is(line, 2, error_codes[i].code))
            continue;
        if ((error_codes[i].verbs >> request->verb & 1) == 0 ||
            !word_is(line, 3, error_codes[i].retry)) {
            wire_broken(client, line, "no error for such a request");
        } else if (strcmp(error_codes[i].code, "INTERNAL") == 0 &&
                   client->world->plan.fault_weight[FAULT_script_break] == 0) {
            wire_broken(client, line, "a defect of the broker");
        }
        return error_codes[i].code;
    }
    wire_broken(client, line, "no such error");
    return "UNKNOWN";
}

static void
word_copy(char *out, size_t bytes, struct text word)
{
    size_t len = word.len < bytes - 1 ? word.len : bytes - 1;

    memcpy(out, word.at, len);
    out[len] = '\0';
}

static void
read_hello(struct client *client, const struct request *request,
    const struct line *line)
{
    char session[33];
    uint64_t keep_ms = 0;
    uint64_t generation = 1;

    word_copy(session, sizeof(session), line_value(line, "session"));
    (void)line_number(line, "keep_ms", &keep_ms);
    (void)line_number(line, "gen", &generation);
    hello_answered(client, request, session, keep_ms, generation);
}

static void
answer_final(struct client *client, const struct request *request,
    const struct answer *a, const struct line *line)
{
    uint64_t items;

    if (request->task != NULL) {
        task_answered(request->task, request, a);
        return;
    }
    switch (request->verb) {
    case VERB_PING:
        tasks_confirmed(client, request, a);
        break;
    case VERB_HELD:
        if (a->code == NULL &&
            (!line_number(line, "n", &items) || items != request->items))
            wire_broken(client, line, "another number of items came");
        tasks_confirmed(client, request, a);
        break;
    case VERB_WATCH:
    case VERB_UNWATCH:
        watch_answered(client, request, a);
        break;
    case VERB_BREAK:
        if (a->code == NULL && !line_number(line, "holders", &items))
            wire_broken(client, line, "BREAK tells no number");
        drill_ordered(client, request, a);
        break;
    case VERB_CLAIM:
        if (a->code == NULL)
            wire_broken(client, line, "a CLAIM of nothing");
        break;
    case VERB_SHOW:
        if (a->code == NULL && line_value(line, "state").len == 0)
            wire_broken(client, line, "SHOW tells no state");
        break;
    case VERB_HELLO:
        if (a->code == NULL && line_value(line, "session").len != 32)
            wire_broken(client, line, "HELLO tells no session");
        else if (a->code == NULL)
            read_hello(client, request, line);
        break;
    case VERB_BAD:
        if (a->code == NULL)
            wire_broken(client, line, "nonsense was carried out");
        break;
    case VERB_UNLOCK:
        /* Of a name that is not held; one that goes may not find out. */
        if (a->code == NULL ||
            (strcmp(a->code, "NOTHELD") != 0 &&
                !(client->draining && strcmp(a->code, "INDOUBT") == 0)))
            wire_broken(client, line, "an UNLOCK of nothing");
        break;
    case VERB_AWAIT:
        await_answered(client, request, a);
        break;
    case VERB_RESIZE:
        resize_answered(client, request, a);
        break;
    case VERB_GIVE_BACK:
    case VERB_PROLONG:
        detached_answered(client, request, a);
        break;
    case VERB_LOCK:
    case VERB_PART:
    case VERB_RENEW:
    case VERB_NOTE:
    case VERB_CANCEL:
    case VERB_QUIT:
    case VERB_KILL:
    case VERB_COUNT:
        break;
    }
}

static void
read_item(
    struct client *client, struct request *request, const struct line *line)
{
    struct answer item;
    uint32_t lock;

    request->items++;
    if (request->verb == VERB_SHOW)
        return;
    answer_read(line, &item);
    if (request->verb != VERB_HELD || !item.has_fence || !item.has_ttl ||
        !item.has_count || !lock_of(client, line_value(line, "name"), &lock)) {
        wire_broken(client, line, "an item that makes no sense");
        return;
    }
    if (!task_listed(client, request, lock, owner_of(line), &item))
        check_broken(client->world->check, PROMISE_TOLD, request->true_sent_us,
            "%s: HELD lists lock-%" PRIu32 " with fence %" PRIu64
            " and count %" PRIu64 ", which is not held so",
            client->machine->name, lock, item.fence, item.count);
}

static void
read_reply(struct client *client, const struct line *line)
{
    struct request *request = request_of(client, line->words[0]);
    struct answer a;

    if (request == NULL) {
        wire_broken(client, line, "no such request is under way");
        return;
    }
    if (word_is(line, 1, "ITEM")) {
        read_item(client, request, line);
        return;
    }
    if (word_is(line, 1, "QUEUED")) {
        if (request->verb != VERB_LOCK || !request->progress ||
            !line_number(line, "position", &(uint64_t){0}))
            wire_broken(client, line, "did not ask for progress");
        else
            drill_queued(request->task);
        request->queued = true;
        return;
    }
    answer_read(line, &a);
    a.lock = request->lock;
    if (line_value(line, "name").len > 0 &&
        !lock_of(client, line_value(line, "name"), &a.lock))
        wire_broken(client, line, "names another lock");
    if (word_is(line, 1, "ERR")) {
        a.code = error_read(client, request, line);
    } else if (!word_is(line, 1, "OK")) {
        wire_broken(client, line, "is no reply");
        return;
    }
    struct request answered = *request;
    request->serial = 0;
    client->requests_now--;
    if (client->ping == answered.serial)
        client->ping = 0;
    answer_final(client, &answered, &a, line);
    if (answered.sent_us > client->proven_us)
        client->proven_us = answered.sent_us;
}

static bool
watch_event(struct client *client, const struct line *line, bool held)
{
    uint64_t fence = 0;
    uint64_t holders = held;
    uint32_t lock;

    if (line->count < 3 || !lock_of(client, line->words[2], &lock) ||
        (held && !line_number(line, "fence", &fence)))
        return false;
    (void)line_number(line, "holders", &holders);
    uint64_t note = 0;
    (void)line_number(line, "note", &note);
    if (held)
        check_noted(
            client->world->check, lock, fence, note, client->machine->name);
    return watch_told(client, lock, fence, (uint32_t)holders);
}

/* False: nobody watches the members of that. */
static bool
member_told(struct client *client, const struct line *line)
{
    struct check *check = client->world->check;
    const char *who = client->machine->name;
    struct outlook *outlook = NULL;
    uint64_t number;
    uint32_t lock;

    if (line->count >= 4 && lock_of(client, line->words[2], &lock))
        outlook = watch_of_members(client, lock);
    if (outlook == NULL)
        return false;
    if (line_number(line, "begin", &number))
        check_members_begin(&outlook->roster, lock);
    else if (line_number(line, "members", &number))
        check_members_end(check, &outlook->roster, number, who);
    else if (line_number(line, "fence", &number))
        check_member(check, &outlook->roster,
            word_is(line, 1, "JOINED") ? MEMBER_JOINED
            : word_is(line, 1, "LEFT") ? MEMBER_LEFT
                                       : MEMBER_CHANGED,
            number, who);
    else
        return false;
    return true;
}

static void
read_wanted(struct client *client, const struct line *line)
{
    uint64_t waiters;
    uint32_t lock;

    if (line->count < 4 || !lock_of(client, line->words[2], &lock) ||
        !line_number(line, "waiters", &waiters) ||
        !wanted_told(client, lock, owner_of(line), waiters))
        wire_broken(client, line, "it holds nothing with wanted=1");
}

static void
read_bye(struct client *client, const struct line *line)
{
    bool asked = word_is(line, 2, "quit") || word_is(line, 2, "eof");

    bool killed = word_is(line, 2, "killed");
    bool stands = text_equal(line_value(line, "keep"), TEXT("1"));

    client->said_bye = true;
    if (killed && client->doom == FAULT_COUNT)
        wire_broken(client, line, "nobody has ordered that");
    if (killed) {
        client->dismissed = true;
        tasks_finish(client);
    }
    if (asked && !client->finishing)
        wire_broken(client, line, "nobody asked for the end");
    else if (asked && client->requests_now > 0)
        wire_broken(client, line, "a request was not answered before the end");
    else if (word_is(line, 2, "protocol") || word_is(line, 2, "error") ||
             word_is(line, 2, "resumed") || line->count != 4)
        wire_broken(client, line, "there is no reason to");
    else if ((killed || word_is(line, 2, "quit")) && stands)
        wire_broken(client, line, "an order has ended the session");
    else if (word_is(line, 2, "drain") && !client->finishing && !stands)
        wire_broken(client, line, "a broker that goes releases nothing");
}

static void
read_lost(struct client *client, const struct line *line)
{
    char reason[16];
    uint64_t fence;
    uint32_t lock;
    struct text why = line_value(line, "reason");

    if (line->count < 4 || !lock_of(client, line->words[2], &lock) ||
        !line_number(line, "fence", &fence) || why.len >= sizeof(reason)) {
        wire_broken(client, line, "a loss of what?");
        return;
    }
    memcpy(reason, why.at, why.len);
    reason[why.len] = '\0';
    if (!task_lost(client, lock, owner_of(line), fence, reason))
        check_broken(client->world->check, PROMISE_TOLD, client->world->now_us,
            "%s: LOST of lock-%" PRIu32 ", fence %" PRIu64
            ", which it does not hold",
            client->machine->name, lock, fence);
}

static void
read_event(struct client *client, const struct line *line)
{
    if (!client->greeted) {
        client->greeted = true;
        if (!word_is(line, 1, "HELLO") && !word_is(line, 1, "BYE"))
            wire_broken(client, line, "is no greeting");
        if (client->moved)
            client_finds_remnants(client);
        else
            word_copy(client->session, sizeof(client->session),
                line_value(line, "session"));
    }
    if (word_is(line, 1, "PING")) {
        if (client->link != LINK_OPEN || client->finishing || line->count < 3)
            return;
        wire_put(client, "PONG ", 5);
        wire_put(client, line->words[2].at, line->words[2].len);
        wire_end(client);
    } else if (word_is(line, 1, "LOST")) {
        read_lost(client, line);
    } else if (word_is(line, 1, "DRAIN")) {
        client->draining = true;
        client_moves_on(client);
    } else if (word_is(line, 1, "HELD") || word_is(line, 1, "FREE")) {
        if (!watch_event(client, line, word_is(line, 1, "HELD")))
            wire_broken(client, line, "nobody watches that");
    } else if (word_is(line, 1, "WANTED")) {
        read_wanted(client, line);
    } else if (word_is(line, 1, "MEMBERS") || word_is(line, 1, "JOINED") ||
               word_is(line, 1, "CHANGED") || word_is(line, 1, "LEFT")) {
        if (!member_told(client, line))
            wire_broken(client, line, "nobody watches its members");
    } else if (word_is(line, 1, "BYE")) {
        read_bye(client, line);
    }
}

/* Cuts a line into words; false: it has none, or bytes that no line has. */
static bool
line_cut(struct line *line, const char *at, size_t len)
{
    const char *end = at + len;

    line->count = 0;
    while (at < end && *at != ':') {
        const char *namespace = memchr(at, ' ', (size_t)(end - at));
        const char *word_end = namespace != NULL ? namespace : end;
        if (line->count < WORDS_MAX)
            line->words[line->count++] = text_make(at, (size_t)(word_end - at));
        if (word_end == at)
            return false;
        at = namespace != NULL ? namespace + 1 : end;
    }
    return line->count >= 2;
}

static void
read_line(struct client *client, const char *at, size_t len)
{
    struct line line;

    wire_trace(client, '<', at, len);
    world_mix(client->world, at, len);
    bool sense = line_cut(&line, at, len);
    if (!sense) {
        wire_broken(client, &line, "a line that makes no sense");
    } else if (client->said_bye) {
        wire_broken(client, &line, "something comes after BYE");
    } else if (word_is(&line, 0, "*")) {
        read_event(client, &line);
    } else if (!client->greeted) {
        wire_broken(client, &line, "comes before the greeting");
    } else if (word_is(&line, 0, "-")) {
        if (client->untagged == 0)
            wire_broken(client, &line, "nothing without a tag was asked");
        else
            client->untagged--;
    } else {
        read_reply(client, &line);
    }
}

/* The received bytes may end anywhere. The client may have hung up after a
 * line. */
void
wire_bytes(struct client *client, const char *bytes, size_t len)
{
    uint64_t life = client->life;

    while (len > 0 && client->life == life) {
        const char *end = memchr(bytes, '\n', len);
        size_t part = end != NULL ? (size_t)(end - bytes) : len;

        if (end != NULL && client->in_len == 0) {
            read_line(client, bytes, part);
        } else {
            if (client->in_len + part > sizeof(client->in)) {
                struct line none = {0};
                wire_broken(client, &none, "a line is longer than 4096 bytes");
                client->in_len = 0;
                return;
            }
            memcpy(client->in + client->in_len, bytes, part);
            client->in_len += (uint32_t)part;
            if (end == NULL)
                return;
            size_t whole = client->in_len;
            client->in_len = 0;
            read_line(client, client->in, whole);
        }
        bytes += part + 1;
        len -= part + 1;
    }
}
