/*
 * Holds the fake Redis against a real one: the same random commands to both,
 * the same bytes from both.
 *
 *     sim-fake-check [--count N] [--seed S] ADDRESS
 *     sim-fake-check [--count N] [--seed S] --cluster ADDRESS ADDRESS ...
 *
 * The real servers are the caller's, fresh, with DEBUG and protected
 * configuration allowed; tests/sim/test_fake.py starts them. At a difference
 * the seed, the step, the command and both replies are printed, and the exit
 * status is 1.
 *
 * Commands are made by looking at the fake's keys, and go to the real server in
 * batches: while it works on one, the fake does the next.
 */
#include "tests/sim/fake_check.h"

#include "daemon/store/wire/scripts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define BATCH          400
#define ANSWER_SECONDS 60
#define SHOWN_BYTES    600

/* --- chance and words ----------------------------------------------------- */

uint64_t
check_below(struct check *check, uint64_t bound)
{
    return random_below(&check->random, bound);
}

bool
check_chance(struct check *check, unsigned percent)
{
    return check_below(check, 100) < percent;
}

void
check_fail(const char *format, ...)
{
    va_list list;

    va_start(list, format);
    fprintf(stderr, "sim-fake-check: ");
    vfprintf(stderr, format, list);
    fprintf(stderr, "\n");
    va_end(list);
    exit(1);
}

uint64_t
clock_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

void
words_begin(struct words *words)
{
    words->count = 0;
    words->match = MATCH_EXACT;
}

void
words_add(struct words *words, const char *at, size_t len)
{
    require(words->count < CHECK_ARGS_MAX);
    struct bytes *memory = &words->memory[words->count];
    memory->len = 0;
    bytes_room(memory, 1);
    bytes_add(memory, at, len);
    words->word[words->count++] = text_make(memory->at, len);
}

void
words_string(struct words *words, const char *string)
{
    words_add(words, string, strlen(string));
}

void
words_format(struct words *words, const char *format, ...)
{
    char text[2048];
    va_list list;

    va_start(list, format);
    int len = vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    require(len >= 0 && (size_t)len < sizeof(text));
    words_add(words, text, (size_t)len);
}

static void
command_write(struct bytes *out, const struct text *words, size_t count)
{
    char head[32];
    int len = snprintf(head, sizeof(head), "*%zu\r\n", count);

    bytes_add(out, head, (size_t)len);
    for (size_t i = 0; i < count; i++) {
        len = snprintf(head, sizeof(head), "$%zu\r\n", words[i].len);
        bytes_add(out, head, (size_t)len);
        bytes_add(out, words[i].at, words[i].len);
        bytes_add(out, "\r\n", 2);
    }
}

/* --- replies -------------------------------------------------------------- */

/* The length of the first reply, or 0 where it has not come whole. */
static size_t
reply_len(const char *at, size_t len)
{
    const char *eol = len > 0 ? memchr(at, '\n', len) : NULL;
    int64_t number = 0;

    if (eol == NULL)
        return 0;
    size_t used = (size_t)(eol - at) + 1;
    if (*at != '$' && *at != '*')
        return used;
    if (!number_read(text_make(at + 1, used - 3), &number))
        check_fail("a reply that makes no sense: %.40s", at);
    if (*at == '$')
        used += number < 0 ? 0 : (size_t)number + 2;
    for (int64_t i = 0; *at == '*' && i < number; i++) {
        size_t item = used < len ? reply_len(at + used, len - used) : 0;
        if (item == 0)
            return 0;
        used += item;
    }
    return used <= len ? used : 0;
}

static bool
near(struct text one, struct text other, int64_t apart)
{
    int64_t a;
    int64_t b;

    if (one.len < 4 || other.len < 4 || one.at[0] != ':' ||
        other.at[0] != ':' ||
        !number_read(text_make(one.at + 1, one.len - 3), &a) ||
        !number_read(text_make(other.at + 1, other.len - 3), &b) || a < 0 ||
        b < 0)
        return false;
    return a - b <= apart && b - a <= apart;
}

static bool
replies_match(struct text one, struct text other, enum match match)
{
    if (text_equal(one, other))
        return true;
    switch (match) {
    case MATCH_EXACT:
        break;
    case MATCH_MS:
        return near(one, other, 10000);
    case MATCH_SECONDS:
        return near(one, other, 10);
    case MATCH_SHAPE:
        return one.at[0] == other.at[0];
    }
    return false;
}

/* --- the real server ------------------------------------------------------ */

static int
real_connect(const char *host, uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port)};
    struct timeval patience = {.tv_sec = ANSWER_SECONDS};
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || inet_pton(AF_INET, host, &address.sin_addr) != 1 ||
        connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0)
        check_fail("cannot connect to %s:%u: %s", host, (unsigned)port,
            strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    return fd;
}

static void
real_write(int fd, const char *at, size_t len)
{
    while (len > 0) {
        ssize_t sent = send(fd, at, len, MSG_NOSIGNAL);
        if (sent <= 0)
            check_fail("cannot write to Redis: %s", strerror(errno));
        at += sent;
        len -= (size_t)sent;
    }
}

/* More of what it says; false where it says no more. */
static bool
real_read(struct lane *lane)
{
    char *room = bytes_room(&lane->actual, 65536);
    ssize_t got = recv(lane->fd, room, 65536, 0);

    if (got <= 0)
        return false;
    lane->actual.len += (size_t)got;
    return true;
}

static void
bytes_drop(struct bytes *bytes, size_t len)
{
    bytes->len -= len;
    if (bytes->len > 0)
        memmove(bytes->at, bytes->at + len, bytes->len);
}

const char *
real_command(struct lane *lane, const char *format, ...)
{
    static char reply[8192];
    char line[512];
    struct bytes out = {0};
    struct text words[CHECK_ARGS_MAX];
    size_t count = 0;
    va_list list;
    size_t len;

    require(lane->pending.count == 0 && lane->now.count == 0);
    va_start(list, format);
    vsnprintf(line, sizeof(line), format, list);
    va_end(list);
    char *rest = line;
    for (char *word = strsep(&rest, " "); word != NULL;
         word = strsep(&rest, " "))
        words[count++] = text_from(strcmp(word, "''") == 0 ? "" : word);
    for (char *at = line; at < line + sizeof(line) && count > 0 &&
                          at < words[count - 1].at + words[count - 1].len;
         at++)
        if (*at == '~')
            *at = ' ';
    command_write(&out, words, count);
    real_write(lane->fd, out.at, out.len);
    bytes_fini(&out);
    while ((len = reply_len(lane->actual.at, lane->actual.len)) == 0)
        if (!real_read(lane))
            check_fail("no answer to %s", line);
    size_t kept = len < sizeof(reply) ? len : sizeof(reply) - 1;
    memcpy(reply, lane->actual.at, kept);
    reply[kept] = '\0';
    bytes_drop(&lane->actual, len);
    return reply;
}

/* --- lanes ---------------------------------------------------------------- */

static struct lane *
lane_of(const struct node *node, uint32_t connection)
{
    for (size_t i = 0; i < node->lane_count; i++)
        if (node->lanes[i]->connection == connection)
            return node->lanes[i];
    return NULL;
}

static void
fake_sent(void *arg, uint32_t connection, const char *bytes, size_t len)
{
    struct lane *lane = lane_of(arg, connection);

    require(lane != NULL);
    bytes_add(lane->listens ? &lane->pushed : &lane->now.expected, bytes, len);
}

struct lane *
lane_open(struct node *node)
{
    struct lane *lane = memory_get(NULL, sizeof(*lane));

    memset(lane, 0, sizeof(*lane));
    require(node->lane_count < CHECK_LANES_MAX);
    lane->fake = node->fake;
    lane->connection = fake_accept(node->fake);
    lane->fd = real_connect(node->host, node->port);
    node->lanes[node->lane_count++] = lane;
    return lane;
}

static void
batch_fini(struct batch *batch)
{
    bytes_fini(&batch->request);
    bytes_fini(&batch->expected);
    free(batch->items);
}

void
lane_close(struct node *node, struct lane *lane)
{
    size_t place = 0;

    while (node->lanes[place] != lane)
        place++;
    node->lanes[place] = node->lanes[--node->lane_count];
    fake_hangup(node->fake, lane->connection);
    close(lane->fd);
    batch_fini(&lane->now);
    batch_fini(&lane->pending);
    bytes_fini(&lane->actual);
    bytes_fini(&lane->pushed);
    free(lane);
}

/* Now and then in pieces. */
static void
fake_feed(struct check *check, struct lane *lane, const char *at, size_t len)
{
    while (check_chance(check, 5) && len > 1) {
        size_t part = 1 + check_below(check, len - 1);
        fake_input(lane->fake, lane->connection, at, part);
        at += part;
        len -= part;
    }
    fake_input(lane->fake, lane->connection, at, len);
}

void
lane_ask(struct check *check, struct lane *lane)
{
    struct batch *batch = &lane->now;
    size_t at = batch->request.len;

    command_write(&batch->request, check->words.word, check->words.count);
    batch->items = array_room(
        batch->items, batch->count, &batch->cap, sizeof(struct item));
    batch->items[batch->count++] = (struct item){
        .at = at,
        .len = batch->request.len - at,
        .match = check->words.match,
    };
    check->made++;
    fake_feed(check, lane, batch->request.at + at, batch->request.len - at);
}

void
lane_send(struct lane *lane)
{
    struct batch old = lane->pending;

    require(old.count == 0);
    lane->pending = lane->now;
    lane->now = old;
    real_write(lane->fd, lane->pending.request.at, lane->pending.request.len);
}

static void
show(const char *what, const char *at, size_t len)
{
    printf("%s, %zu bytes:\n  ", what, len);
    for (size_t i = 0; i < len && i < SHOWN_BYTES; i++) {
        unsigned char c = (unsigned char)at[i];
        if (c == '\n')
            printf("\\n\n  ");
        else if (c < ' ' || c > '~')
            printf("\\x%02x", c);
        else
            putchar(c);
    }
    printf("\n");
}

static _Noreturn void
differs(const struct check *check, const struct lane *lane, size_t index,
    struct text fake, struct text real)
{
    const struct item *item = &lane->pending.items[index];

    printf("seed=%" PRIu64 " step=%" PRIu64 ": the replies differ\n",
        check->seed, check->step);
    show("command", lane->pending.request.at + item->at, item->len);
    show("real", real.at, real.len);
    show("fake", fake.at, fake.len);
    exit(1);
}

void
lane_compare(struct check *check, struct lane *lane)
{
    struct batch *batch = &lane->pending;
    size_t fake_at = 0;
    size_t real_at = 0;

    for (size_t i = 0; i < batch->count; i++) {
        struct text fake = text_make(batch->expected.at + fake_at, 0);
        fake.len = reply_len(fake.at, batch->expected.len - fake_at);
        size_t len;
        while ((len = reply_len(lane->actual.at + real_at,
                    lane->actual.len - real_at)) == 0)
            if (!real_read(lane))
                differs(check, lane, i, fake, TEXT("(nothing)"));
        struct text real = text_make(lane->actual.at + real_at, len);
        check->step++;
        if (!replies_match(fake, real, batch->items[i].match))
            differs(check, lane, i, fake, real);
        fake_at += fake.len;
        real_at += real.len;
    }
    if (fake_at != batch->expected.len)
        check_fail("the fake said too much: seed=%" PRIu64 " step=%" PRIu64,
            check->seed, check->step);
    bytes_drop(&lane->actual, real_at);
    batch->request.len = 0;
    batch->expected.len = 0;
    batch->count = 0;
}

void
lane_settle(struct check *check, struct lane *lane)
{
    lane_compare(check, lane);
    lane_send(lane);
    lane_compare(check, lane);
}

/* Published messages: the same in the same order. */
void
lane_messages(struct check *check, struct lane *lane)
{
    while (lane->actual.len < lane->pushed.len)
        if (!real_read(lane))
            break;
    if (lane->actual.len != lane->pushed.len ||
        (lane->actual.len > 0 &&
            memcmp(lane->actual.at, lane->pushed.at, lane->actual.len) != 0)) {
        printf("seed=%" PRIu64 " step=%" PRIu64 ": the messages differ\n",
            check->seed, check->step);
        show("real", lane->actual.at, lane->actual.len);
        show("fake", lane->pushed.at, lane->pushed.len);
        exit(1);
    }
    lane->actual.len = 0;
    lane->pushed.len = 0;
}

/* --- nodes ---------------------------------------------------------------- */

static void
info_field(struct lane *lane, const char *field, char out[41])
{
    const char *info = real_command(lane, "INFO everything");
    const char *at = strstr(info, field);

    if (at == NULL || strlen(at) < strlen(field) + 40)
        check_fail("INFO has no %s", field);
    memcpy(out, at + strlen(field), 40);
    out[40] = '\0';
}

static void
node_take_ids(struct check *check, struct node *node, struct lane *lane)
{
    char run_id[41];

    info_field(lane, "run_id:", run_id);
    info_field(lane, "master_replid:", check->repl_id);
    fake_set_ids(node->fake, run_id, check->repl_id);
}

void
node_open(
    struct check *check, struct node *node, const char *address, bool cluster)
{
    struct fake_settings settings = {
        .seed = check->seed,
        .sink = {.send = fake_sent},
        .arg = node,
        .cluster = cluster,
    };
    const char *colon = strrchr(address, ':');

    if (colon == NULL || (size_t)(colon - address) >= sizeof(node->host))
        check_fail("no address: %s", address);
    memcpy(node->host, address, (size_t)(colon - address));
    node->port = (uint16_t)strtoul(colon + 1, NULL, 10);
    memcpy(settings.host, node->host, sizeof(settings.host));
    settings.port = node->port;
    node->fake = fake_create(&settings);
    fake_set_clock(node->fake, clock_us());
    node_take_ids(check, node, lane_open(node));
}

void
node_close(struct node *node)
{
    while (node->lane_count > 0)
        lane_close(node, node->lanes[0]);
    fake_destroy(&node->fake);
}

/* --- a single server ------------------------------------------------------ */

/* Keys that end within the batch are not asked for before they have. */
static void
check_expiry(struct check *check, struct lane *lane)
{
    struct words *words = &check->words;

    lane_settle(check, lane);
    fake_set_clock(lane->fake, clock_us());
    for (int i = 0; i < 4; i++) {
        words_begin(words);
        words_string(words, "SET");
        words_format(words, "short:%d", i);
        words_string(words, "value");
        words_string(words, "PX");
        words_format(words, "%" PRIu64, 1 + check_below(check, 20));
        lane_ask(check, lane);
    }
    lane_settle(check, lane);
    struct timespec pause = {.tv_nsec = 30000000};
    nanosleep(&pause, NULL);
    fake_set_clock(lane->fake, clock_us());
    for (int i = 0; i < 4; i++) {
        static const char *const ask[] = {"GET", "EXISTS", "PTTL", "DEL"};
        words_begin(words);
        words_string(words, ask[check_below(check, 4)]);
        words_format(words, "short:%d", i);
        lane_ask(check, lane);
    }
    lane_settle(check, lane);
}

static void
load_scripts(struct check *check, struct lane *lane)
{
    for (int i = 0; i < SCRIPT_COUNT; i++) {
        words_begin(&check->words);
        words_string(&check->words, "SCRIPT");
        words_string(&check->words, "LOAD");
        words_add(&check->words, check->script[i].at, check->script[i].len);
        lane_ask(check, lane);
    }
}

static void
flush_scripts(struct check *check, struct lane *lane)
{
    words_begin(&check->words);
    words_string(&check->words, "SCRIPT");
    words_string(&check->words, "FLUSH");
    lane_ask(check, lane);
}

/* A batch is on its way at the real server while the fake does the next. */
static void
run_batches(struct check *check, struct lane *lane, struct lane *listener,
    unsigned batches)
{
    for (unsigned i = 0; i < batches; i++) {
        fake_set_clock(lane->fake, clock_us());
        for (int j = 0; j < BATCH; j++) {
            make_command(check, lane->fake);
            lane_ask(check, lane);
        }
        lane_compare(check, lane);
        lane_send(lane);
    }
    lane_settle(check, lane);
    lane_messages(check, listener);
}

/* The same while the server refuses this or that. */
static void
check_moods(struct check *check, struct node *node, struct lane *lane,
    struct lane *listener)
{
    static const struct {
        enum fake_mood mood;
        const char *on;
        const char *off;
    } moods[] = {
        {FAKE_OOM, "CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"},
        {FAKE_NOREPLICAS, "CONFIG SET min-replicas-to-write 1",
            "CONFIG SET min-replicas-to-write 0"},
    };

    for (size_t i = 0; i < sizeof(moods) / sizeof(moods[0]); i++) {
        real_command(lane, "%s", moods[i].on);
        fake_set_mood(node->fake, moods[i].mood);
        run_batches(check, lane, listener, 2);
        fake_set_mood(node->fake, FAKE_WELL);
        real_command(lane, "%s", moods[i].off);
    }
}

static void
check_disk_error(struct check *check, struct node *node, struct lane *lane,
    struct lane *listener)
{
    real_command(lane, "CONFIG SET dir /proc");
    real_command(lane, "CONFIG SET save 3600~1000000000");
    real_command(lane, "BGSAVE");
    while (strstr(real_command(lane, "INFO persistence"),
               "rdb_last_bgsave_status:err") == NULL) {
        struct timespec pause = {.tv_nsec = 10000000};
        nanosleep(&pause, NULL);
    }
    fake_set_mood(node->fake, FAKE_MISCONF);
    run_batches(check, lane, listener, 2);
    fake_set_mood(node->fake, FAKE_WELL);
    real_command(lane, "CONFIG SET save ''");
    real_command(lane, "CONFIG SET dir /");
}

/* A script that does not end, on a connection of its own. */
static void
check_busy(struct check *check, struct node *node, struct lane *lane,
    struct lane *listener)
{
    static const char endless[] =
        "*3\r\n$4\r\nEVAL\r\n$17\r\nwhile true do end\r\n$1\r\n0\r\n";
    struct lane *busy = lane_open(node);

    real_command(lane, "CONFIG SET busy-reply-threshold 1");
    real_write(busy->fd, endless, sizeof(endless) - 1);
    while (strncmp(real_command(lane, "PING"), "-BUSY", 5) != 0)
        continue;
    fake_set_mood(node->fake, FAKE_BUSY);
    run_batches(check, lane, listener, 1);
    fake_set_mood(node->fake, FAKE_WELL);
    real_command(lane, "SCRIPT KILL");
    while (strncmp(real_command(lane, "PING"), "+PONG", 5) != 0)
        continue;
    real_command(lane, "CONFIG SET busy-reply-threshold 5000");
    lane_close(node, busy);
}

/* A replica: the real one of a master that is not there, with its own data. */
static void
check_replica(struct check *check, struct node *node, struct lane *lane,
    struct lane *listener)
{
    struct fake_settings settings = {.seed = check->seed + 1};
    struct fake *other = fake_create(&settings);

    fake_set_clock(other, clock_us());
    fake_replicate_from(other, node->fake);
    fake_promote(other);
    fake_replicate_from(node->fake, other);
    real_command(lane, "REPLICAOF 127.0.0.1 1");
    node_take_ids(check, node, lane);
    check->is_replica = true;
    run_batches(check, lane, listener, 2);
    check->is_replica = false;
    real_command(lane, "REPLICAOF NO ONE");
    fake_promote(node->fake);
    fake_destroy(&other);
    node_take_ids(check, node, lane);
}

/* Commands where a connection has subscribed, and its last one. */
static void
check_subscribed(struct check *check, struct node *node)
{
    static const char *const lines[] = {"PING", "SUBSCRIBE one", "PING",
        "PING x", "GET k", "SUBSCRIBE one two", "UNSUBSCRIBE two", "PING x y",
        "UNSUBSCRIBE", "UNSUBSCRIBE", "GET k", "UNSUBSCRIBE z", "AUTH x",
        "AUTH default x", "AUTH nobody x", "AUTH a b c", "CLIENT SETNAME a",
        "CLIENT GETNAME", "CLIENT KILL ID 4000000", "CLIENT KILL ID 0",
        "CLIENT KILL ID x", "CLIENT KILL ID", "CLIENT X", "CLIENT", "ROLE",
        "INFO replication", "INFO nosuch", "ECHO", "ECHO x", "SELECT 0",
        "SELECT x", "SELECT 100", "WAIT 0 0", "WAIT x 0", "WAIT 0 x",
        "WAIT 0 -1", "ASKING", "READONLY", "READWRITE", "CLUSTER SLOTS",
        "CLUSTER MYID", "CLUSTER KEYSLOT a", "DBSIZE", "SCRIPT EXISTS x y",
        "SCRIPT FLUSH x", "SCRIPT LOAD x y", "FLUSHALL x", "QUIT"};
    struct lane *lane = lane_open(node);

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        char line[80];
        char *rest = line;
        snprintf(line, sizeof(line), "%s", lines[i]);
        words_begin(&check->words);
        for (char *word = strsep(&rest, " "); word != NULL;
             word = strsep(&rest, " "))
            words_string(&check->words, word);
        /* This one has three answers for its two channels. */
        if (strcmp(lines[i], "SUBSCRIBE one two") == 0) {
            words_begin(&check->words);
            words_string(&check->words, "SUBSCRIBE");
            words_string(&check->words, "two");
        }
        lane_ask(check, lane);
    }
    lane_settle(check, lane);
    lane_close(node, lane);
}

/* Bytes that are no command: both say why, and close. */
static void
check_protocol(struct check *check, struct node *node)
{
    static const char *const wrong[] = {"*x\r\n", "*1\r\nPING\r\n",
        "*1\r\n$x\r\n", "*1\r\n$-1\r\n", "*2147483648\r\n",
        "*1\r\n$536870913\r\n", "*-1\r\n*0\r\n*1\r\n$x\r\n", "*1\r\n\r\n",
        "*1\r\n:1\r\n", "*01\r\n", "*+1\r\n", "*\r\n", "*1\r\n$\r\n"};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct lane *lane = lane_open(node);
        bytes_add(&lane->now.request, wrong[i], strlen(wrong[i]));
        lane->now.items = array_room(lane->now.items, lane->now.count,
            &lane->now.cap, sizeof(struct item));
        lane->now.items[lane->now.count++] =
            (struct item){.len = strlen(wrong[i])};
        fake_feed(check, lane, wrong[i], strlen(wrong[i]));
        lane_settle(check, lane);
        if (real_read(lane))
            check_fail("Redis did not close after %s", wrong[i]);
        if (connection_find(node->fake, lane->connection) != NULL)
            check_fail("the fake did not close after %s", wrong[i]);
        lane_close(node, lane);
    }
}

static void
listen_to_brokers(struct check *check, struct lane *lane)
{
    words_begin(&check->words);
    words_string(&check->words, "SUBSCRIBE");
    for (int i = 0; i < 3; i++)
        words_format(&check->words, "holdfast:broker:broker-%d", i);
    words_string(&check->words, "news");
    lane->listens = true;
    lane_ask(check, lane);
    real_write(lane->fd, lane->now.request.at, lane->now.request.len);
    lane->now.request.len = 0;
    lane->now.count = 0;
    lane_messages(check, lane);
}

static void
check_single(struct check *check, const char *address)
{
    struct node node = {0};

    node_open(check, &node, address, false);
    struct lane *lane = node.lanes[0];
    struct lane *listener = lane_open(&node);
    listen_to_brokers(check, listener);
    for (unsigned round = 0; check->made < check->count; round++) {
        load_scripts(check, lane);
        run_batches(check, lane, listener, 10);
        check_expiry(check, lane);
        if (round % 4 == 3) {
            real_command(lane, "DEBUG CHANGE-REPL-ID");
            node_take_ids(check, &node, lane);
        }
        if (round % 16 == 1) {
            check_subscribed(check, &node);
            check_protocol(check, &node);
            check_moods(check, &node, lane, listener);
            check_busy(check, &node, lane, listener);
        }
        flush_scripts(check, lane);
        run_batches(check, lane, listener, 1);
    }
    load_scripts(check, lane);
    lane_settle(check, lane);
    check_disk_error(check, &node, lane, listener);
    check_replica(check, &node, lane, listener);
    node_close(&node);
}

/* --- main ----------------------------------------------------------------- */

int
main(int argc, char **argv)
{
    struct check check = {.seed = 1, .count = 1000000};
    bool cluster = false;
    int at = 1;

    for (; at < argc && strncmp(argv[at], "--", 2) == 0; at++) {
        if (strcmp(argv[at], "--cluster") == 0)
            cluster = true;
        else if (strcmp(argv[at], "--count") == 0 && at + 1 < argc)
            check.count = strtoull(argv[++at], NULL, 10);
        else if (strcmp(argv[at], "--seed") == 0 && at + 1 < argc)
            check.seed = strtoull(argv[++at], NULL, 10);
        else
            check_fail("no such option: %s", argv[at]);
    }
    if (at == argc || (!cluster && at + 1 != argc))
        check_fail("usage: [--count N] [--seed S] ADDRESS | --cluster "
                   "ADDRESS...");
    random_init(&check.random, check.seed);
    check.now_us = 1800000000000000;
    locks_init(&check);
    check_replicas();
    if (cluster)
        check_cluster(&check, argv + at, (size_t)(argc - at));
    else
        check_single(&check, argv[at]);
    printf("seed=%" PRIu64 ": %" PRIu64 " replies compared, all equal (lock "
           "scripts %" PRIu64 ", plain commands %" PRIu64
           ", other scripts %" PRIu64 ")\n",
        check.seed, check.step, check.by_kind[0], check.by_kind[1],
        check.by_kind[2]);
    for (size_t i = 0; i < CHECK_ARGS_MAX; i++)
        bytes_fini(&check.words.memory[i]);
    for (size_t i = 0; i < SCRIPT_COUNT; i++)
        bytes_fini(&check.script[i]);
    return 0;
}
